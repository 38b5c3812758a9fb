/* What the server tells, asked every second. */
const PERIOD = 1000, PATIENCE = 5000;
const numbers = new Map();
let last = null, answered = null;

for (const [id, label] of [["rate", "New tokens/s"], ["first", "First token"],
  ["between", "Between tokens"], ["running", "Running"], ["pages", "KV pages"],
  ["steps", "Steps/s"], ["drafts", "Drafts accepted"]]) {
  const value = make("b", {}, "–"), under = make("div", {class: "soft"});
  const made = make("div", {class: "card", id}, make("span", {class: "soft"}, label), value, under);
  numbers.set(id, {made, value, under});
  at("numbers").append(made);
}

function tellNumber(id, value, unit, under) {
  const one = numbers.get(id);
  one.value.replaceChildren(value, make("small", {}, unit && ` ${unit}`));
  put(one.under, under);
}

function tellTimes(id, times, none) {
  if (!times) tellNumber(id, "–", "", none);
  else tellNumber(id, wait(times.p50), "p50", `p99 ${wait(times.p99)}, last minute`);
}

function perSecond(now, name) {
  if (!last || now[name] === undefined || last[name] === undefined) return "–";
  return now.uptime > last.uptime ? number((now[name] - last[name]) / (now.uptime - last.uptime))
    : "–";
}

function showNumbers(now) {
  const {running, capacity, waiting, max_waiting: room} = now.requests;
  tellNumber("rate", perSecond(now, "new_tokens"), "", `${number(now.new_tokens)} in all`);
  tellTimes("first", now.latency && now.latency.first_token, "no request in the last minute");
  tellTimes("between", now.latency && now.latency.between_tokens, "no stream in the last minute");
  tellNumber("running", number(running), `of ${number(capacity)}`,
    `${number(waiting)} waiting, room for ${number(room)}`);
  tellNumber("steps", perSecond(now, "steps"), "", now.redone_steps === undefined ? ""
    : `${number(now.redone_steps)} redone`);
  showPages(now.kv);
  const drafts = now.speculation;
  numbers.get("drafts").made.hidden = !(drafts && drafts.drafted);
  if (drafts && drafts.drafted) tellNumber("drafts",
    `${number(100 * drafts.accepted / drafts.drafted)}%`, "", `of ${number(drafts.drafted)}`);
}

function showPages(kv) {
  const {under} = numbers.get("pages");
  if (!kv) return tellNumber("pages", "–", "", "not told yet");
  tellNumber("pages", number(kv.held), `of ${number(kv.pages)}`, "");
  const share = (pages) => `${100 * pages / kv.pages}%`;
  under.replaceChildren(`held; ${number(kv.cached)} cached`,
    draw("svg", {class: "pages", "aria-hidden": "true"},
      draw("rect", {class: "used", height: "100%", width: share(kv.held)}),
      draw("rect", {class: "kept", height: "100%", x: share(kv.held), width: share(kv.cached)})));
}

/* "4 emulated u280 boards", a part for each sort of board. */
function machine(boards) {
  const sorts = new Map();
  for (const board of boards) {
    const sort = `${board.type} ${board.name} board`;
    sorts.set(sort, (sorts.get(sort) || 0) + 1);
  }
  return [...sorts].map(([sort, count]) => counted(count, sort)).join(", ");
}

function showHeader(now, boards, all) {
  document.title = `${now.model} – lora serve`;
  put(at("model"), now.model);
  put(at("machine"), `on ${machine(boards)}`);
  at("machine").hidden = !boards.length;
  state(now.status, {ready: "good", loading: ""}[now.status] ?? "bad");
  put(at("links"), linksTold(all));
  at("links").className = `state ${all.every((cable) => cable.up) ? "good" : "bad"}`;
  const adapters = now.adapters.length ? `, adapters ${now.adapters.join(", ")}` : "";
  const version = now.version === "unknown" ? "" : `version ${now.version}, `;
  put(at("about"), `${version}up ${duration(now.uptime)}${adapters}`);
}

function state(text, look) {
  put(at("state"), text);
  at("state").className = `state ${look}`;
}

function alerted(lines) {
  at("alert").hidden = !lines.length;
  put(at("alert"), lines.join("\n"));
}

const WORDS = {
  draining: "The server is shutting down; what is below is as it was.",
  dead: "The boards no longer work; the server must be restarted.",
};

function notices(now, boards, all) {
  const found = WORDS[now.status] ? [WORDS[now.status]] : [];
  for (const cable of all) if (!cable.up) found.push(`Link down: ${cableName(cable)}`);
  for (const board of boards)
    if (ownFaults(board).length) found.push(`Board ${board.rank}: ${ownFaults(board).join(", ")}`);
  const [notice] = now.weight_notices.slice(-1);
  if (notice) found.push(`Damaged weights were loaded again ` +
    `(${counted(now.weight_notices.length, "time")}), last: ${notice.cause}`);
  return found;
}

function show(now) {
  if (last && now.uptime < last.uptime) last = null;  // it was started again
  const before = last && now.status !== "loading" ? last.boards : [];
  const boards = now.boards.length ? now.boards : before, all = cables(boards);
  showHeader(now, boards, all);
  alerted(notices(now, boards, all));
  at("loading").hidden = now.status !== "loading";
  at("live").hidden = now.status === "loading";
  if (now.status === "loading") {
    put(at("loaded"), now.total_bytes
      ? `Loading the model: ${bytes(now.loaded_bytes)} of ${bytes(now.total_bytes)}`
      : "Opening the model");
    at("load").max = now.total_bytes || 1;
    at("load").value = now.loaded_bytes;
  } else {
    showTry(now);
    if (now.status === "ready") showNumbers(now);
    if (now.history) showHistory(now.history);
    if (boards.length) {
      showMap(boards, all);
      showBoards(boards);
    }
  }
  last = {...now, boards};
}

function refused(hadKey) {
  at("login").hidden = false;
  at("live").hidden = true;
  state("locked", "bad");
  put(at("wanted"), hadKey ? "This server does not accept that key." : "This server wants an API key.");
}

/* [the status code, the state where it is 200], or null where nothing comes. */
async function asked(headers) {
  try {
    const got = await fetch("status", {headers, signal: AbortSignal.timeout(PATIENCE)});
    return [got.status, got.ok ? await got.json() : null];
  } catch {
    return null;
  }
}

async function poll() {
  const headers = withKey(), [status, now] = await asked(headers) || [0, null];
  at("forget").hidden = !headers.authorization;
  if (status === 401) return refused(Boolean(headers.authorization));
  if (!now) return silent(status);
  answered = Date.now();
  at("login").hidden = true;
  show(now);
}

function silent(status) {
  const since = answered === null ? "" :
    ` for ${duration((Date.now() - answered) / 1e3)}; what is below is as it was then`;
  const how = status ? `answers with an error, ${status},` : "has not answered";
  state("no answer", "bad");
  alerted([`The server ${how}${since}. It is asked again every second.`]);
}

async function polls() {
  try {
    await poll();
  } finally {
    setTimeout(polls, PERIOD);
  }
}

at("login").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem("key", at("key").value);
  at("key").value = "";
  poll();
});
at("forget").addEventListener("click", () => {
  sessionStorage.removeItem("key");
  poll();
});
polls();
