/* The box in which the model is tried: a chat where there is a template, else a completion. */
const SAMPLING = [
  ["temperature", {min: 0, max: 2, step: "any", placeholder: "1"}, "temperature"],
  ["top_p", {min: 0, max: 1, step: "any", placeholder: "1"}, "top-p"],
  ["top_k", {min: 0, step: 1, placeholder: "off"}, "top-k"],
  ["max_tokens", {min: 1, step: 1}, "most new tokens"],
  ["seed", {min: 0, step: 1, placeholder: "random"}, "seed"],
];
const ask = {chat: null, context: 0, messages: [], running: null};

for (const [name, attributes, label] of SAMPLING)
  at("sampling").append(make("label", {}, label,
    make("input", {type: "number", name, inputmode: "decimal", ...attributes})));

function showTry(now) {
  if (ask.chat !== now.chat || ask.context !== now.context) {
    Object.assign(ask, {chat: now.chat, context: now.context, messages: []});
    at("ask").elements.max_tokens.value = Math.max(1, Math.min(256, now.context >> 1));
    at("prompt").placeholder = now.chat ? "A message" : "The beginning of a text";
    put(at("send"), now.chat ? "Send" : "Complete");
    put(at("hint"), now.chat ? "Enter sends, Shift+Enter is a new line" : "Ctrl+Enter completes");
    emptied();
  }
  const names = [now.model, ...now.adapters], select = at("variant");
  if (names.join("\n") !== [...select.options].map((one) => one.value).join("\n")) {
    const chosen = select.value;
    select.replaceChildren(...names.map((name) => make("option", {value: name}, name)));
    if (names.includes(chosen)) select.value = chosen;
  }
  select.hidden = names.length < 2;
  if (!ask.running) at("send").disabled = now.status !== "ready";
}

function emptied() {
  ask.messages = [];
  put(at("result"), "");
  at("said").replaceChildren(make("p", {class: "soft"}, ask.chat
    ? "Messages go through the model's chat template."
    : "This model has no chat template: it continues a text."));
}

/* Where an answer grows; its thoughts are folded away. */
function answerPlace(prompt) {
  if (!ask.messages.length) at("said").replaceChildren();
  const answer = make("span"), thoughts = make("div", {class: "text soft"});
  const folded = make("details", {hidden: ""}, make("summary", {class: "soft"}, "Thoughts"), thoughts);
  if (ask.chat) at("said").append(
    make("div", {class: "user"}, make("div", {class: "who"}, "you"),
      make("div", {class: "text"}, prompt)),
    make("div", {}, make("div", {class: "who"}, at("variant").value), folded,
      make("div", {class: "text"}, answer)));
  else at("said").replaceChildren(make("div", {class: "completion"},
    make("div", {class: "text"}, make("span", {class: "soft"}, prompt), answer)));
  return {answer, thoughts, folded};
}

function requestOf(prompt) {
  const body = {model: at("variant").value, stream: true,
    stream_options: {include_usage: true, continuous_usage_stats: true}};
  for (const [name] of SAMPLING) {
    const value = at("ask").elements[name].value;
    if (value !== "") body[name] = Number(value);
  }
  if (ask.chat) body.messages = [...ask.messages, {role: "user", content: prompt}];
  else body.prompt = prompt;
  return body;
}

/* The objects of a stream of events as they come. */
async function* events(reply) {
  const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const {done, value} = await reader.read();
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines)
      if (line.startsWith("data: {")) yield JSON.parse(line.slice(6));
  }
}

async function complaint(reply) {
  const told = await reply.json().catch(() => null);
  return told && told.error && told.error.message || `the server answers ${reply.status}`;
}

async function generate(prompt) {
  const body = requestOf(prompt), place = answerPlace(prompt);
  const clock = {sent: performance.now(), first: 0, last: 0, tokens: 0, end: ""};
  ask.running = new AbortController();
  working(true);
  try {
    const reply = await fetch(ask.chat ? "v1/chat/completions" : "v1/completions", {
      method: "POST", body: JSON.stringify(body), signal: ask.running.signal,
      headers: withKey({"content-type": "application/json"})});
    if (!reply.ok) throw new Error(await complaint(reply));
    for await (const part of events(reply)) take(part, place, clock, body);
    if (!clock.end) throw new Error("the stream ended early");
  } catch (error) {
    clock.end = error.name === "AbortError" ? "stopped by you" : error instanceof TypeError
      ? "the server does not answer" : error.message;
    clock.failed = error.name !== "AbortError";
  }
  tell(clock);
  if (ask.chat && place.answer.textContent) ask.messages.push({role: "user", content: prompt},
    {role: "assistant", content: place.answer.textContent});
  else if (ask.chat) at("prompt").value ||= prompt;
  working(false);
}

function take(part, place, clock, body) {
  if (part.error) throw new Error(part.error.message);
  const [choice] = part.choices;
  if (part.usage && part.usage.completion_tokens > clock.tokens) {
    clock.last = performance.now();
    clock.first ||= clock.last;
    clock.firstTokens ||= part.usage.completion_tokens;
    clock.tokens = part.usage.completion_tokens;
  }
  if (choice) {
    const delta = choice.delta || {content: choice.text}, log = at("said");
    const follows = log.scrollHeight - log.scrollTop - log.clientHeight < 40;
    place.answer.append(delta.content || "");
    place.thoughts.append(delta.reasoning_content || "");
    place.folded.hidden = !place.thoughts.textContent;
    if (follows) log.scrollTop = log.scrollHeight;
    if (choice.finish_reason) clock.end = choice.finish_reason === "length"
      ? clock.tokens >= body.max_tokens ? `cut at ${counted(body.max_tokens, "new token")}`
        : `cut at the context's end, ${counted(ask.context, "token")}`
      : "ended by the model";
  }
  tell(clock);
}

function tell(clock) {
  const parts = [], seconds = (clock.last - clock.first) / 1e3;
  if (clock.tokens) parts.push(counted(clock.tokens, "token"));
  if (seconds > 0) parts.push(`${number((clock.tokens - clock.firstTokens) / seconds)} tokens/s`);
  if (clock.first) parts.push(`first token after ${wait((clock.first - clock.sent) / 1e3)}`);
  if (clock.end) parts.push(clock.end);
  at("result").setAttribute("aria-live", clock.end ? "polite" : "off");  // read out once
  put(at("result"), parts.join(", ") || "waiting for the first token");
  at("result").className = clock.failed ? "bad" : "soft";
}

function working(on) {
  const stopped = document.activeElement === at("stop");
  at("send").disabled = at("clear").disabled = on;
  at("stop").disabled = !on;
  at("said").setAttribute("aria-busy", on);
  if (on) return;
  ask.running = null;
  if (stopped) at("prompt").focus({preventScroll: true});  // a disabled button keeps no focus
}

at("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  const prompt = at("prompt").value;
  if (ask.running || at("send").disabled || !prompt) return;
  if (ask.chat) at("prompt").value = "";
  generate(prompt);
});
at("prompt").addEventListener("keydown", (event) => {
  const sends = event.key === "Enter" && !event.isComposing &&
    (ask.chat ? !event.shiftKey : event.ctrlKey || event.metaKey);
  if (!sends) return;
  event.preventDefault();
  at("ask").requestSubmit();
});
at("ask").addEventListener("keydown", (event) => {
  if (event.key === "Escape" && ask.running) ask.running.abort();
});
at("stop").addEventListener("click", () => ask.running && ask.running.abort());
at("clear").addEventListener("click", () => { emptied(); at("prompt").focus(); });
