"use strict";
// Reads the cell under the pointer from the numbers that stand in the page as text. Without it nothing is lost but this.
for (const map of document.querySelectorAll(".map")) {
  const [left, top, width, height] = map.dataset.plot.split(" ").map(Number);
  const image = map.querySelector("img");
  const said = map.querySelector("output");
  const text = map.parentElement.querySelector(".matrix");
  let rows = null;
  const split = (line) => [...line.matchAll(/(?:^|,)(?:"((?:[^"]|"")*)"|([^,]*))/g)]
    .map((found) => found[1] === undefined ? found[2] : found[1].replaceAll('""', '"'));
  image.addEventListener("pointermove", (event) => {
    rows ??= text.textContent.trimEnd().split("\n").map(split);
    const box = image.getBoundingClientRect();
    const across = ((event.clientX - box.left) / box.width - left) / width;
    const down = ((event.clientY - box.top) / box.height - top) / height;
    if (across < 0 || across >= 1 || down < 0 || down >= 1) return;
    const row = rows[1 + Math.floor(down * (rows.length - 1))];
    const column = 1 + Math.floor(across * (rows[0].length - 1));
    const value = row[column] || "not measured";
    said.textContent = `${row[0]} → ${rows[0][column]}: ${isNaN(value) ? value : value + " MB/s"}`;
  });
}
