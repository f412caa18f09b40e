import { json, text as fetchText } from "./api.js";
import { all, read, value } from "./metrics.js";
import { announce, button, choice, count, el, field, milliseconds, percent, plural } from "./dom.js";
import { visible } from "./text.js";

// Interval in milliseconds at which the view requests plans, and the number of steps per request.
const pause = 1000;
const steps = 40;

// Plans shows recent steps, the reasons for their plans, and the contents of the cache.
export class Plans {
  constructor(app) {
    this.app = app;
    this.name = "plans";
    this.title = "Plans";
    this.timer = null;
    this.live = true;
    this.refused = false; // whether a request was refused for lack of a key, until the view is opened again
    this.open = new Set(); // steps whose details are shown
    this.build();
  }

  build() {
    this.fault = el("p", { class: "fault", role: "alert", hidden: true });
    this.toggle = button("Pause", () => this.turn(!this.live), { "aria-pressed": "false" });
    this.numbers = el("dl", { class: "numbers" });
    this.pages = el("div", { class: "stack", role: "img" });
    this.legend = el("p", { class: "muted small" });
    this.stops = el("tbody");
    this.bars = el("div", { class: "bars", role: "img" });
    this.rows = el("tbody");
    this.stages = el("tbody");
    this.answer = el("div", { class: "explained", "aria-live": "polite" });
    this.form = el("form", {
      class: "ask",
      onsubmit: (e) => {
        e.preventDefault();
        this.explain();
      },
    });
    this.node = el(
      "div",
      { class: "plans page" },
      el("h1", {}, "What is running, and why"),
      this.fault,
      el(
        "section",
        { class: "card" },
        el("div", { class: "row between" }, el("h2", {}, "Now"), this.toggle),
        this.numbers,
      ),
      el(
        "div",
        { class: "columns even" },
        el(
          "section",
          { class: "card" },
          el("h2", {}, "Cache"),
          this.pages,
          this.legend,
          table("Why the cached part of prompts ended", ["reason", "prompts"], this.stops),
        ),
        el(
          "section",
          { class: "card" },
          el("h2", {}, "Time of each stage"),
          table(
            "Stages of the requests that this page sent",
            ["request", "queued", "prefill", "decode", "cached"],
            this.stages,
          ),
        ),
      ),
      el(
        "section",
        { class: "card" },
        el("h2", {}, "Latest steps"),
        this.bars,
        (this.barsLegend = el("p", { class: "muted small" })),
        table("Forward passes, the latest first", ["step", "mode", "rows", "requests", "time", "segments"], this.rows),
      ),
      el(
        "section",
        { class: "card" },
        el("h2", {}, "Explain another batch"),
        el(
          "p",
          { class: "muted" },
          "What would run for a batch on any hardware, and every rejected kernel. ",
          "The kernels \u201csparrow\u201d are this server's own, for CPUs and Hopper GPUs; \u201cpublic\u201d are ",
          "those of other engines.",
        ),
        this.form,
        this.answer,
      ),
    );
  }

  show() {
    this.buildForm();
    this.turn(this.live || this.refused);
  }

  hide() {
    clearTimeout(this.timer);
  }

  turn(on) {
    this.live = on;
    this.refused = false;
    this.toggle.textContent = on ? "Pause" : "Go on";
    this.toggle.setAttribute("aria-pressed", String(!on));
    clearTimeout(this.timer);
    if (on) this.tick();
  }

  async tick() {
    clearTimeout(this.timer);
    try {
      if (!document.hidden) await this.refresh();
      this.fault.hidden = true;
    } catch (err) {
      this.fault.hidden = false;
      this.fault.textContent = `The request failed: ${err.message}`;
      if (err.status === 401) {
        this.turn(false); // otherwise the dialog for the key would open again every second
        this.refused = true;
      }
    }
    if (this.live && this.node.isConnected) this.timer = setTimeout(() => this.tick(), pause);
  }

  async refresh() {
    const [metrics, plans] = await Promise.all([fetchText("metrics"), json(`debug/plans?n=${steps}`)]);
    const m = read(metrics);
    this.showNumbers(m);
    this.showCache(m);
    this.showStages();
    this.showSteps(plans.plans);
  }

  showNumbers(m) {
    const ttft =
      value(m, "sparrow_time_to_first_token_seconds_sum") / value(m, "sparrow_time_to_first_token_seconds_count");
    const between = value(m, "sparrow_inter_token_seconds_sum") / value(m, "sparrow_inter_token_seconds_count");
    const queried = value(m, "sparrow_prefix_queried_tokens_total"),
      hit = value(m, "sparrow_prefix_hit_tokens_total");
    const facts = [
      ["running", count(value(m, "sparrow_requests_running"))],
      ["waiting", count(value(m, "sparrow_requests_waiting"))],
      ["steps so far", count(value(m, "sparrow_steps_total"))],
      ["tokens in", count(value(m, "sparrow_prompt_tokens_total"))],
      ["tokens out", count(value(m, "sparrow_output_tokens_total"))],
      ["prompt tokens from the cache", percent(hit, queried)],
      ["mean time to first token", Number.isFinite(ttft) ? milliseconds(1000 * ttft) : "none yet"],
      ["mean time between tokens", Number.isFinite(between) ? milliseconds(1000 * between) : "none yet"],
    ];
    this.numbers.replaceChildren(...facts.map(([name, v]) => el("div", {}, el("dt", {}, name), el("dd", {}, v))));
  }

  showCache(m) {
    const states = ["used", "cached", "free"].map((s) => [s, value(m, "sparrow_kv_pages", { state: s })]);
    const total = states.reduce((n, [, v]) => n + v, 0);
    this.pages.replaceChildren(
      ...states.map(([name, v]) => {
        const part = el("span", { class: "part " + name });
        part.style.flexGrow = String(v);
        return part;
      }),
    );
    const text =
      `${count(total)} pages of ${value(m, "sparrow_kv_page_tokens")} tokens: ` +
      states.map(([name, v]) => `${count(v)} ${name}`).join(", ") +
      `. ${count(value(m, "sparrow_kv_evictions_total"))} evicted so far.`;
    this.pages.setAttribute("aria-label", text);
    this.legend.replaceChildren(...states.map(([name]) => el("span", { class: "key " + name }, name)), " ", text);
    const found = all(m, "sparrow_prefix_stops_total")
      .filter((s) => s.value > 0)
      .sort((a, b) => b.value - a.value);
    this.stops.replaceChildren(
      ...(found.length
        ? found.map((s) => el("tr", {}, el("td", {}, s.labels.reason), el("td", { class: "number" }, count(s.value))))
        : [empty(2, "No prompt was looked up yet.")]),
    );
  }

  showStages() {
    const list = this.app.requests.filter((r) => r.stats.times);
    this.stages.replaceChildren(
      ...(list.length
        ? list
            .slice(0, 8)
            .map((r) =>
              el(
                "tr",
                {},
                el("td", {}, visible(r.title).slice(0, 40)),
                ...["queued_ms", "prefill_ms", "decode_ms"].map((k) =>
                  el("td", { class: "number" }, milliseconds(r.stats.times[k])),
                ),
                el("td", { class: "number", title: r.stats.prefix?.stop ?? "" }, count(r.stats.cached ?? 0)),
              ),
            )
        : [empty(5, "Send a message in the chat; its stages are listed here.")]),
    );
  }

  showSteps(plans) {
    const most = Math.max(...plans.map((p) => p.took_ms), 1e-9);
    this.bars.replaceChildren(
      ...plans.toReversed().map((p) => {
        const bar = el("span", { class: "bar " + p.plan.mode });
        bar.style.height = `${Math.max(2, (100 * p.took_ms) / most)}%`;
        return bar;
      }),
    );
    this.bars.setAttribute(
      "aria-label",
      plans.length
        ? `Times of the last ${plans.length} steps; the longest took ${milliseconds(most)}`
        : "No step ran yet",
    );
    this.bars.hidden = this.barsLegend.hidden = !plans.length;
    this.barsLegend.replaceChildren(
      el("span", { class: "key warm" }, "with rows of prompts"),
      el("span", { class: "key decodes" }, "answers only"),
      `A bar is a step, the latest on the right; the tallest took ${milliseconds(most)}.`,
    );
    const had = new Map([...this.rows.children].map((row) => [row.dataset.step, row]));
    const out = [];
    for (const p of plans) {
      const id = String(p.step);
      out.push(had.get(id) ?? this.step(p));
      if (this.open.has(id)) out.push(had.get(id + " details") ?? this.details(p));
    }
    const same = out.length === this.rows.children.length && out.every((row, i) => row === this.rows.children[i]);
    if (!same) this.rows.replaceChildren(...(out.length ? out : [empty(6, "No step has run yet: send a message.")]));
  }

  step(p) {
    const id = String(p.step);
    const opener = button(
      count(p.step),
      () => {
        const is = !this.open.delete(id);
        if (is) this.open.add(id);
        opener.setAttribute("aria-expanded", String(is));
        if (is) row.after(this.details(p));
        else row.nextElementSibling.remove();
      },
      { class: "plain", "aria-expanded": String(this.open.has(id)), "aria-label": `Step ${p.step}, details` },
    );
    const row = el(
      "tr",
      { data: { step: id } },
      el("td", { class: "number" }, opener),
      el("td", {}, p.plan.mode),
      el("td", { class: "number" }, count(p.plan.rows)),
      el("td", { class: "number" }, count(p.requests)),
      el("td", { class: "number" }, milliseconds(p.took_ms)),
      el(
        "td",
        {},
        (p.plan.segments ?? []).map((s) =>
          el("span", { class: "tag" }, `${count(s.rows)} ${s.row} \u2192 ${s.kernel}`),
        ),
      ),
    );
    return row;
  }

  details(p) {
    return el(
      "tr",
      { class: "details", data: { step: p.step + " details" } },
      el("td", { colSpan: 6 }, reasons(p.plan.reasons), (p.plan.segments ?? []).map(segment)),
    );
  }

  // buildForm creates the form for explaining a batch.
  async buildForm() {
    if (this.asked) return;
    this.form.replaceChildren(el("p", { class: "muted" }, "Loading\u2026"));
    let offered;
    try {
      offered = await json("debug/explain");
    } catch (err) {
      this.form.replaceChildren(el("p", { class: "fault" }, err.message));
      return;
    }
    const pick = (values, first, name = (v) => v) =>
      choice([...(first ? [["", first]] : []), ...values.map((v) => [v, name(v)])], first ? "" : values[0], () => {});
    const devices = (arch) => {
      const known = offered.devices?.[arch];
      return known ? `${arch} (${known.join(", ").toUpperCase()})` : arch;
    };
    this.asked = {
      family: pick(offered.families, `the served model (${offered.model})`),
      hw: pick(offered.hardware, "this machine", devices),
      catalog: pick(offered.catalogs),
      kv: pick(["bf16", "fp8", "fp8-576", "f32"], "default"),
      batch: el("input", { type: "text", value: "mixed:extend:3000/decode:4000", class: "mono", spellcheck: false }),
    };
    const a = this.asked;
    this.form.replaceChildren(
      el(
        "div",
        { class: "grid" },
        field("Model", a.family),
        field("Hardware (hw)", a.hw),
        field("Kernels (catalog)", a.catalog),
        field("Cache (kv)", a.kv),
      ),
      field("Batch", a.batch, offered.batch_syntax),
      el("p", {}, el("button", { class: "primary" }, "Explain")),
    );
  }

  async explain() {
    const body = {};
    for (const [name, node] of Object.entries(this.asked)) if (node.value) body[name] = node.value;
    try {
      const a = await json("debug/explain", { body });
      const c = a.config;
      this.answer.replaceChildren(
        el(
          "p",
          {},
          `${c.model.family} on ${c.hardware.arch}: ${c.kv} cache (${c.layout} rows, pages of ${c.page}), prefill ${
            c.prefill
          }, decode ${c.decode}; ${
            c.model.index_topk
              ? `the ${count(c.model.index_topk)} best keys of each query`
              : "every key of each query, nothing is selected"
          }.`,
        ),
        ...(a.notices ?? []).map((n) =>
          el("p", { class: n.level === "info" ? "notice" : "notice warning" }, `${n.level}: ${n.text}`),
        ),
        reasons(c.reasons),
        rejected(c.rejected),
        ...(a.plan
          ? [
              el(
                "h3",
                {},
                `${a.plan.mode}: ${plural(a.plan.rows, "row")} in ${plural(a.plan.segments.length, "segment")}`,
              ),
              reasons(a.plan.reasons),
              ...a.plan.segments.map(segment),
            ]
          : []),
      );
      announce("The plan is shown below the form");
    } catch (err) {
      this.answer.replaceChildren(el("p", { class: "fault", role: "alert" }, err.message));
      announce("There is no plan: the reason is below the form");
    }
  }
}

function table(caption, heads, body) {
  return el(
    "div",
    { class: "scroll", tabIndex: 0, role: "region", "aria-label": caption },
    el(
      "table",
      {},
      el("caption", { class: "muted small" }, caption),
      el(
        "thead",
        {},
        el(
          "tr",
          {},
          heads.map((h) => el("th", { scope: "col" }, h)),
        ),
      ),
      body,
    ),
  );
}

const empty = (columns, text) => el("tr", {}, el("td", { colSpan: columns, class: "muted" }, text));

function reasons(list) {
  return (list ?? []).length
    ? el(
        "ul",
        { class: "reasons" },
        list.map((r) => el("li", {}, r.text, el("span", { class: "muted" }, ` (${r.rule})`))),
      )
    : "";
}

function rejected(list) {
  return (list ?? []).length
    ? el(
        "details",
        {},
        el("summary", {}, `${plural(list.length, "kernel")} rejected`),
        el(
          "ul",
          { class: "reasons" },
          list.map((r) => el("li", {}, el("code", {}, r.kernel), ` for ${r.phase}: ${r.reason}`)),
        ),
      )
    : "";
}

// segment shows a plan segment: how rows of one kind are computed.
function segment(s) {
  const facts = [
    ["form", s.form],
    ["kernel", s.kernel],
    ["cache rows", s.layout],
    ["convert", s.convert],
    ["transform", s.transform],
    ["indexer", s.indexer?.kind ?? s.indexer],
    ["launches", count(s.launches?.length ?? 0)],
  ];
  return el(
    "section",
    { class: "segment" },
    el("h3", {}, plural(s.rows, `${s.row} row`)),
    el(
      "dl",
      { class: "facts" },
      facts.map(([k, v]) => el("div", {}, el("dt", {}, k), el("dd", {}, String(v)))),
    ),
    reasons(s.reasons),
    rejected(s.rejected),
  );
}
