/* A card a board. What changes while a server runs is put into cards that stay. */
const MOST_OPEN = 8;  // boards whose cards are open
let shown = "", cards = new Map();

/* What is wrong with a board itself, and then with its links too. */
function ownFaults(board) {
  const found = [];
  if (board.memory_errors.uncorrected)
    found.push(counted(board.memory_errors.uncorrected, "uncorrected memory error"));
  if (board.state && board.state !== "running") found.push(board.state);
  return found;
}

function faults(board) {
  const down = board.links.filter((link) => !link.up)
    .map((link) => `port ${link.port} to board ${link.peer.rank} down`);
  return [...ownFaults(board), ...down];
}

function health(board) {
  return faults(board).join(", ") || "healthy";
}

/* Neighbouring banks with equal contents as one: HBM[0–31]. */
function folded(banks) {
  const found = [];
  for (const bank of banks) {
    const [, stem, index] = /^(.*)\[(\d+)\]$/.exec(bank.bank) || [null, bank.bank, null];
    const last = found[found.length - 1];
    if (last && index !== null && last.stem === stem && last.used === bank.used &&
        last.usable === bank.usable && last.to + 1 === Number(index)) last.to++;
    else found.push({...bank, stem, from: index, to: Number(index)});
  }
  return found;
}

function bankRow(one) {
  const several = one.from !== null && Number(one.from) !== one.to;
  const name = several ? `${one.stem}[${one.from}–${one.to}]` : one.bank;
  const share = one.usable ? 100 * one.used / one.usable : 0;
  return make("div", {class: "bank"}, make("span", {}, name),
    make("span", {class: "soft"}, `${bytes(one.used)} of ${bytes(one.usable)}` +
      (several ? " each" : "")),
    draw("svg", {"aria-hidden": "true"}, draw("rect", {class: "used", height: "100%",
      width: `${one.used ? Math.max(share, 0.6) : 0}%`})));
}

function bankRows(banks) {
  const rows = folded(banks).map(bankRow);
  if (rows.length <= 6) return rows;
  return [make("details", {}, make("summary", {class: "soft"}, counted(banks.length, "bank")),
    ...rows)];
}

function card(board) {
  const used = board.banks.reduce((sum, bank) => sum + bank.used, 0);
  const usable = board.banks.reduce((sum, bank) => sum + bank.usable, 0);
  const state = make("span", {class: "state"}), changing = make("dl");
  const facts = [["address", board.address], ["serial", `${board.serial}`]];
  if (board.replica !== undefined) facts.push(["replica", board.replica], ["node", board.node]);
  facts.push(["memory", `${bytes(used)} of ${bytes(usable)} reserved`]);
  const made = make("details", {class: "card", id: `board-${board.rank}`},
    make("summary", {class: "head"}, make("h3", {}, `Board ${board.rank} `,
      make("span", {class: "soft"}, `${board.type} ${board.name}`)), state),
    make("dl", {}, ...facts.flatMap(([name, value]) =>
      [make("dt", {}, name), make("dd", {}, value)])),
    ...bankRows(board.banks), changing);
  return {made, state, changing};
}

function changes(board) {
  const rows = board.links.map((link) => [`port ${link.port}`,
    `board ${link.peer.rank} port ${link.peer.port} ${link.up ? "up" : "down"}, ` +
    `${roughly(link.frames)} frames${link.errors ? `, ${counted(link.errors, "error")}` : ""}`,
    link.up ? "" : "bad"]);
  if (!rows.length) rows.push(["links", "none", ""]);
  const {corrected, uncorrected} = board.memory_errors;
  if (corrected || uncorrected) rows.push(["ECC",
    `${number(corrected)} corrected, ${number(uncorrected)} not`, uncorrected ? "bad" : ""]);
  return rows.flatMap(([name, text, look]) =>
    [make("dt", {}, name), make("dd", {class: look}, text)]);
}

/* A board that the map leads to. */
addEventListener("hashchange", () => {
  const named = document.getElementById(location.hash.slice(1));
  if (named && named.matches("details.card")) named.open = true;
});

function showBoards(boards) {
  const fixed = JSON.stringify(boards.map(({links, memory_errors, state, ...rest}) => rest));
  if (fixed !== shown) {
    cards = new Map(boards.map((board) => [board.rank, card(board)]));
    for (const [rank, {made}] of cards) made.open = boards.length <= MOST_OPEN ||
      location.hash === `#board-${rank}` || faults(boards.find((one) => one.rank === rank)).length;
    at("boards").replaceChildren(...[...cards.values()].map((one) => one.made));
    shown = fixed;
  }
  for (const board of boards) {
    const {state, changing} = cards.get(board.rank);
    put(state, health(board));
    state.className = `state ${faults(board).length ? "bad" : "good"}`;
    const now = JSON.stringify([board.links, board.memory_errors]);
    if (now === cards.get(board.rank).now) continue;
    cards.get(board.rank).now = now;
    changing.replaceChildren(...changes(board));
  }
}
