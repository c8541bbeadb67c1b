// The topology as the graph that it is. Nodes have the colour of their worker's state, edges are as wide as their traffic.

import {bytes} from "./format.js";

const SVG = "http://www.w3.org/2000/svg";
const SIZE = 240, EDGE = 22;

const piece = (name, attributes, text = "") => {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text) made.textContent = text;
  return made;
};

let drawn = "", nodes = [], edges = [];

export function drawTopology(map, workers) {
  const states = new Map(workers.map((worker) => [worker.rank, worker.state]));
  const now = JSON.stringify([map.spots, map.edges, map.directed, map.note]);
  if (now !== drawn) build(map);
  drawn = now;
  const most = Math.max(0, ...map.traffic);
  edges.forEach((line, number) => {  // what changes every second is changed in place
    const [one, other] = map.edges[number], carried = map.traffic[number];
    const width = String(most ? (1 + 5 * Math.sqrt(carried / most)).toFixed(1) : 1), told = most ? `${one} – ${other}: ${bytes(carried)}` : "";
    if (line.getAttribute("stroke-width") !== width) line.setAttribute("stroke-width", width);
    if (line.firstChild.textContent !== told) line.firstChild.textContent = told;
  });
  nodes.forEach((group, number) => {
    const rank = map.spots[number][0], state = states.get(rank) ?? "gone";
    if (group.getAttribute("class") === state) return;
    group.setAttribute("class", state);
    group.firstChild.textContent = `worker ${rank}: ${state}`;
  });
}

function build(map) {
  const picture = document.getElementById("graph");
  const at = new Map(map.spots.map(([rank, x, y]) => [rank, [EDGE + x * (SIZE - 2 * EDGE), EDGE + y * (SIZE - 2 * EDGE)]]));
  const width = Math.max(SIZE / 2, ...[...at.values()].map(([x]) => x + EDGE));
  const height = Math.max(2 * EDGE, ...[...at.values()].map(([, y]) => y + EDGE));
  picture.setAttribute("viewBox", `0 0 ${width} ${height}`);
  picture.setAttribute("aria-label", `${map.spots.length} workers, ${map.edges.length} edges`);
  const radius = map.spots.length > 40 ? 4 : map.spots.length > 16 ? 8 : 13;
  edges = map.edges.map(([one, other]) => {
    const [x1, y1] = at.get(one), [x2, y2] = at.get(other), line = piece("line", {x1, y1, x2, y2});
    line.append(piece("title", {}));
    return line;
  });
  nodes = map.spots.map(([rank]) => {
    const [cx, cy] = at.get(rank), group = piece("g", {});
    group.append(piece("title", {}), piece("circle", {cx, cy, r: radius}));
    if (radius > 7) group.append(piece("text", {x: cx, y: cy + 4}, String(rank)));
    return group;
  });
  const arrows = map.directed ? map.edges.map(([one, other]) => arrow(at.get(one), at.get(other), radius)) : [];
  picture.replaceChildren(...edges, ...arrows, ...nodes);
  document.getElementById("graphnote").textContent = map.note;
}

function arrow([x1, y1], [x2, y2], radius) {
  const angle = Math.atan2(y2 - y1, x2 - x1), x = x2 - (radius + 2) * Math.cos(angle), y = y2 - (radius + 2) * Math.sin(angle);
  const side = (turn) => `${x - 7 * Math.cos(angle + turn)},${y - 7 * Math.sin(angle + turn)}`;
  return piece("polygon", {points: `${x},${y} ${side(0.45)} ${side(-0.45)}`});
}
