import { count, el } from "./dom.js";
import { Grid, cell, shade } from "./picture.js";

// ExpertPicture draws which experts computed rows, as a table of layers by experts.
export class ExpertPicture {
  constructor() {
    this.grid = new Grid("Layers by experts", 60);
    this.told = el("p", { class: "muted" });
    this.node = el("section", { class: "card" }, el("h2", {}, "Experts"), this.grid.canvas, this.told);
  }

  open(recording) {
    this.recording = recording;
    this.node.hidden = !recording.experts;
    this.grid.setHeight(Math.max(24, Math.min(360, recording.expertLayers.length * 14)));
  }

  // show draws the sum of the expert weights of the given rows; what describes the rows.
  show(rows, what) {
    const { experts, expertLayers } = this.recording;
    if (!experts) return;
    const cells = expertLayers.map((layer) => {
      const line = new Float32Array(experts);
      for (const row of rows) {
        const x = row.experts.get(layer);
        x?.ids.forEach((id, i) => (line[id] += x.weights ? x.weights[i] : 1));
      }
      return line;
    });
    const most = Math.max(1e-9, ...cells.map((line) => Math.max(...line)));
    this.grid.show((pixels) => {
      const ramp = pixels.ramp("first");
      cells.forEach((line, j) => {
        const rows = cell(j, cells.length, pixels.height, 1);
        line.forEach((v, i) => {
          if (v) pixels.bar(...cell(i, line.length, pixels.width, 1), ...rows, ramp[shade(v / most)]);
        });
      });
    });
    const used = cells.reduce((n, line) => n + line.filter((v) => v > 0).length, 0);
    this.told.textContent =
      `${count(used)} of ${count(cells.length * experts)} experts computed ${what}; rows are layers ` +
      `${expertLayers[0]} to ${expertLayers.at(-1)}, columns experts 0 to ${experts - 1}.`;
    this.grid.describe(this.told.textContent);
  }
}
