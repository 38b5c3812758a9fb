/* Boards as nodes, links as lines. */

/* One for each cable: its ends, and whether both of its ports are up. */
function cables(boards) {
  const found = new Map();
  for (const board of boards) for (const link of board.links) {
    const ends = [{rank: board.rank, port: link.port}, link.peer]
      .sort((a, b) => a.rank - b.rank || a.port - b.port);
    const key = ends.map((end) => `${end.rank}.${end.port}`).join("-");
    found.set(key, {ends, up: link.up && (found.get(key) || {up: true}).up});
  }
  return [...found.values()];
}

function cableName({ends: [a, b]}) {
  return `board ${a.rank} port ${a.port} – board ${b.rank} port ${b.port}`;
}

function linksTold(all) {
  const down = all.filter((cable) => !cable.up).length;
  if (!all.length) return "";
  if (down) return `${number(down)} of ${counted(all.length, "link")} down`;
  return all.length === 1 ? "the link is up" : `all ${number(all.length)} links up`;
}

/* Boards that are joined, directly or not. */
function groups(boards, all) {
  const of = new Map(boards.map((board) => [board.rank, [board]]));
  for (const {ends: [a, b]} of all) {
    const [one, other] = [of.get(a.rank), of.get(b.rank)];
    if (!one || !other || one === other) continue;
    one.push(...other);
    for (const board of other) of.set(board.rank, one);
  }
  return [...new Set(of.values())];
}

/* [column, row] of `count` boards: a walk through a grid whose end is beside its beginning, so
   that links of a ring join neighbours. */
function places(count) {
  if (count < 3) return [[0, 0], [1, 0]].slice(0, count);
  let rows = 2;
  while (count / rows > 8) rows += 2;
  const columns = Math.ceil(count / rows), walk = [];
  for (let column = 0; column < columns; column++) walk.push([column, 0]);
  for (let row = 1; row < rows; row++) for (let step = 1; step < columns; step++)
    walk.push([row % 2 ? columns - step : step, row]);
  for (let row = rows - 1; row > 0; row--) walk.push([0, row]);
  return walk.slice(0, count);
}

function drawGroup(boards, all) {
  boards.sort((a, b) => a.rank - b.rank);
  const spots = places(boards.length), wide = boards.length <= MOST_LABELLED;
  const [dx, dy] = wide ? [92, 76] : [43, 43], [w, h] = wide ? [46, 34] : [27, 27];
  const columns = Math.max(...spots.map((spot) => spot[0])) + 1;
  const rows = Math.max(...spots.map((spot) => spot[1])) + 1;
  const middle = new Map(boards.map((board, index) => [board.rank,
    [spots[index][0] * dx + w / 2 + 4, spots[index][1] * dy + h / 2 + 4]]));
  const [width, height] = [(columns - 1) * dx + w + 8, (rows - 1) * dy + h + 8];
  const beside = new Map(), made = [];
  for (const cable of all) {
    const [a, b] = cable.ends.map((end) => middle.get(end.rank));
    if (!a || !b) continue;
    const pair = cable.ends.map((end) => end.rank).join();
    const before = beside.get(pair) || 0;
    beside.set(pair, before + 1);
    made.push(drawCable(cable, a, b, before, [dx, dy], wide));
  }
  const nodes = boards.map((board) => {
    const [x, y] = middle.get(board.rank);
    return draw("a", {class: `node${faults(board).length ? " sick" : ""}`,
      href: `#board-${board.rank}`, "aria-label": `board ${board.rank}, ${health(board)}`},
    draw("title", {}, `board ${board.rank}, ${board.type} ${board.name}: ${health(board)}`),
    draw("rect", {x: x - w / 2, y: y - h / 2, width: w, height: h, rx: 6}),
    draw("text", {x, y: y + 5}, `${board.rank}`));
  });
  return draw("svg", {viewBox: `0 0 ${width} ${height}`, width, height, role: "group",
    "aria-label": "boards and their links"}, ...made, ...nodes);
}

/* A straight line between neighbours; a bow where another cable or a board is in the way. */
function drawCable(cable, a, b, before, [dx, dy], labelled) {
  const [x, y] = [b[0] - a[0], b[1] - a[1]], length = Math.hypot(x, y) || 1;
  const near = Math.abs(x) <= dx && Math.abs(y) <= dy && (!x || !y);
  const bow = before ? 16 * Math.ceil(before / 2) * (before % 2 ? 1 : -1) : near ? 0 : length / 8;
  const across = [-y / length, x / length];
  const control = [0, 1].map((i) => (a[i] + b[i]) / 2 + 2 * bow * across[i]);
  const centre = [0, 1].map((i) => (a[i] + b[i]) / 2 + bow * across[i]);
  const told = `${cableName(cable)}: ${cable.up ? "up" : "down"}`;
  const made = [draw("title", {}, told), draw("path", {class: `link${cable.up ? "" : " down"}`,
    d: `M${a} Q${control} ${b}`})];
  if (!cable.up) made.push(draw("path", {class: "cross",
    d: `M${centre[0] - 5},${centre[1] - 5} l10,10 m-10,0 l10,-10`}));
  const part = (x ? 31 : 25) / length, side = bow > 0 ? 8 : -8;
  if (labelled) for (const [end, t] of [[0, part], [1, 1 - part]]) {
    const on = (i) => (1 - t) ** 2 * a[i] + 2 * t * (1 - t) * control[i] + t * t * b[i];
    made.push(draw("text", {"text-anchor": "middle", x: on(0) + side * across[0],
      y: on(1) + side * across[1] + 4}, `${cable.ends[end].port}`));
  }
  return draw("g", {}, ...made);
}

const MOST_LABELLED = 8;  // boards beside each other, for more there is no room
let mapped = "";

function showMap(boards, all) {
  const drawn = JSON.stringify([boards.map((board) => [board.rank, board.type, health(board)]),
    all.map((cable) => [cable.ends, cable.up])]);
  if (drawn === mapped) return;
  mapped = drawn;
  const down = all.filter((cable) => !cable.up);
  const joined = groups(boards, all);
  const labelled = joined.every((group) => group.length <= MOST_LABELLED);
  const told = make("p", {class: "soft"}, all.length
    ? `${counted(boards.length, "board")}, ${counted(all.length, "link")}. Each line is a link` +
      `${labelled ? ", with its ports' numbers at its ends" : ""}; a dashed one with a cross is ` +
      "down. A box is a board with its rank, and leads to it below."
    : "No links: each board works alone.");
  const lost = down.map((cable) => make("span", {class: "bad state"},
    make("br"), `${cableName(cable)} is down`));
  told.append(...lost);
  at("map").hidden = boards.length < 2;
  at("map").replaceChildren(...joined.map((group) => drawGroup(group, all)), told);
}
