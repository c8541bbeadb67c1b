// The table of hosts: how busy each is, as bars with their numbers.

import {make} from "./elements.js";
import {bytes} from "./format.js";

function share(value, text) {
  const cell = make("td");
  if (value === null) {
    cell.textContent = "–";
    return cell;
  }
  const bar = make("div", "", "bar use"), part = bar.appendChild(make("span"));
  part.style.width = `${Math.min(100, 100 * value)}%`;
  bar.setAttribute("aria-hidden", "true");
  cell.append(bar, text);
  return cell;
}

const percent = (value) => `${Math.round(100 * (value ?? 0))}%`;
const memory = (used, total) => total ? share(used / total, `${bytes(used)} of ${bytes(total)}`) : share(null);
let shown = "";

export function showHosts(hosts) {
  const now = JSON.stringify(hosts);
  if (now === shown) return;
  shown = now;
  document.getElementById("hosts").replaceChildren(...hosts.map((host) => {
    const row = make("tr");
    const cells = [
      make("td", host.host, "text"), make("td", ranks(host.ranks), "text"),
      share(host.processor, `${percent(host.processor)} of ${host.cores} cores`), memory(host.memory_used, host.memory_total),
      host.gpus ? share(host.gpu, `${percent(host.gpu)} of ${host.gpus}`) : make("td", "–"),
      memory(host.gpu_memory_used, host.gpu_memory_total),
    ];
    const heads = document.querySelectorAll("#hosttable th");
    cells.forEach((cell, at) => { cell.dataset.label = heads[at].textContent; });
    row.append(...cells);
    return row;
  }));
}

// 0–3, 5
function ranks(given) {
  const spans = [];
  for (const rank of given) {
    if (spans.length && spans.at(-1)[1] === rank - 1) spans.at(-1)[1] = rank;
    else spans.push([rank, rank]);
  }
  return spans.map(([first, last]) => first === last ? `${first}` : last === first + 1 ? `${first}, ${last}` : `${first}–${last}`).join(", ");
}
