// The form: sliders with a number beside them, and choices, for the fields of a state.
"use strict";
(function (root) {
  const WHOLE = { whole: true };
  const RANGES = {
    num_examples: { label: "examples", low: 100, high: 1e8, ...WHOLE },
    batch_size: { label: "batch (expected)", low: 1, high: 1e6, ...WHOLE },
    batches_per_epoch: { label: "batches per epoch", low: 1, high: 1e6, ...WHOLE },
    sampling_prob: { label: "sampling probability", low: 1e-6, high: 1 },
    epochs: { label: "epochs", low: 1, high: 1000, ...WHOLE },
    steps: { label: "steps", low: 1, high: 1e6, ...WHOLE },
    epsilon: { label: "target epsilon", low: 0.1, high: 50 },
    delta: { label: "delta", low: 1e-12, high: 1e-2 },
    noise_multiplier: { label: "noise multiplier", low: 0.1, high: 1000 },
    bands: { label: "bands", low: 1, high: 1000, start: 4, ...WHOLE },
    exponent: { label: "exponent", low: 0.05, high: 0.95, start: 0.5 },
    buffers: { label: "buffers", low: 1, high: 10, start: 3, ...WHOLE },
    height: { label: "height", low: 1, high: 20, start: 5, ...WHOLE },
    min_sep: { label: "steps between participations", low: 1, high: 10000, start: 16, ...WHOLE },
    groups: { label: "groups", low: 1, high: 1000, start: 4, ...WHOLE },
    examples_per_user: { label: "examples per user", low: 1, high: 100, start: 2, ...WHOLE },
  };
  /** Other labels where a client is an example and its update a gradient. */
  const OF_CLIENTS = {
    num_examples: "clients",
    batch_size: "clients per round (expected)",
    batches_per_epoch: "rounds per pass over the clients",
    epochs: "passes over the clients",
    steps: "rounds",
    min_sep: "rounds between participations",
    examples_per_user: "clients per user",
  };
  const words = (name) => name.replaceAll("_", " ");
  let made = 0;
  let clients = false;

  /** Speak of clients and rounds from now on, or of examples and steps. */
  function speak(state) {
    clients = state.clients === true;
  }

  /** What the page calls a field. */
  const label = (name) => (clients && OF_CLIENTS[name]) || (RANGES[name]?.label ?? words(name));

  function element(name, attributes = {}, ...content) {
    const node = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) {
      if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
      else if (value === true) node.setAttribute(key, "");
      else if (value !== false && value !== null && value !== undefined) node.setAttribute(key, value);
    }
    node.append(...content);
    return node;
  }

  /** The values that a slider stops at: two digits each, whole where the field is. */
  function ladder({ low, high, whole }) {
    const stops = [];
    for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power++) {
      for (let digits = 10; digits < 100; digits++) {
        const value = Number(`${digits}e${power - 1}`);
        if (value >= low && value <= high && (!whole || Number.isInteger(value))) stops.push(value);
      }
    }
    return stops;
  }

  function nearest(steps, value) {
    let best = 0;
    steps.forEach((step, k) => {
      if (Math.abs(Math.log(step / value)) < Math.abs(Math.log(steps[best] / value))) best = k;
    });
    return best;
  }

  /** A slider and a number for one field of a table named `where`; `changed` is called after every change. */
  function slider(where, table, name, changed) {
    const steps = ladder(RANGES[name] ?? { low: 1, high: 1e6, whole: true });
    const key = `control-${++made}`;
    const move = element("input", { type: "range", min: 0, max: steps.length - 1, step: 1, "aria-label": `${label(name)}, slider` });
    const number = element("input", { type: "number", step: "any", id: key, "data-table": where, "data-field": name });
    const show = () => {
      move.value = table[name] > 0 ? nearest(steps, table[name]) : 0;
      move.setAttribute("aria-valuetext", String(table[name]));
    };
    move.addEventListener("input", () => {
      table[name] = steps[Number(move.value)];
      number.value = table[name];
      move.setAttribute("aria-valuetext", number.value);
      changed();
    });
    number.addEventListener("input", () => {
      if (number.value === "") return;
      table[name] = Number(number.value);
      show();
      changed();
    });
    number.value = table[name];
    show();
    return element("div", { class: "row" }, element("label", { for: key }, label(name)), move, number);
  }

  /** A list of choices for the field `name` of a table; `texts` says those in other words. */
  function choice(title, [where, name], options, value, changed, texts = {}) {
    const key = `control-${++made}`;
    const select = element("select", { id: key, class: "wide", "data-table": where, "data-field": name });
    for (const offered of options)
      select.append(
        element("option", { value: offered, selected: offered === value }, texts[offered] ?? words(offered)),
      );
    select.addEventListener("change", () => changed(select.value));
    return element("div", { class: "row" }, element("label", { for: key }, title), select);
  }

  /** The control of one option of a sampler or a strategy. */
  function option(where, table, field, changed) {
    const set = (value) => {
      if (value === "") delete table[field.name];
      else table[field.name] = value;
      changed();
    };
    const title = label(field.name);
    const place = [where, field.name];
    if (field.required) {
      table[field.name] ??= RANGES[field.name]?.start ?? 1;
      return slider(where, table, field.name, changed);
    }
    const value = table[field.name] ?? field.default ?? "";
    if (field.choices) return choice(title, place, field.default === null ? ["", ...field.choices] : field.choices, value, set);
    if (field.type === "boolean")
      return choice(title, place, ["true", "false"], String(value), (text) => set(text === "true"));
    const key = `control-${++made}`;
    const number = element("input", { type: "number", step: "any", id: key, class: "wide", value, "data-table": where, "data-field": field.name });
    number.addEventListener("input", () => set(number.value === "" ? "" : Number(number.value)));
    return element("div", { class: "row" }, element("label", { for: key }, `${title} (optional)`), number);
  }

  /** The fields that all mechanisms share. */
  function shared(container, state, changed) {
    const chosen = Object.keys(state.data).filter((name) => name === "epochs" || name === "steps");
    const rows = Object.keys(state.data).flatMap((name) => [
      ...(chosen.length === 1 && chosen[0] === name ? [length(container, state, changed)] : []), // both given have to agree
      slider("data", state.data, name, changed),
    ]);
    state.target.delta ??= 1e-5;
    if (state.ask === "epsilon") {
      state.noise_multiplier ??= 1;
      rows.push(slider("", state, "noise_multiplier", changed));
    } else {
      state.target.epsilon ??= 2;
      rows.push(slider("target", state.target, "epsilon", changed));
    }
    container.replaceChildren(...rows, slider("target", state.target, "delta", changed));
  }

  /** Whether the length of the run is given in epochs or in steps; a change keeps the length, rounded. */
  function length(container, state, changed) {
    const { data } = state;
    const [now, other] = "steps" in data ? ["steps", "epochs"] : ["epochs", "steps"];
    const texts = { epochs: label("epochs"), steps: label("steps") };
    return choice("length of the run in", ["page", "length"], ["epochs", "steps"], now, () => {
      const rate = data.sampling_prob ?? (data.batches_per_epoch ? 1 / data.batches_per_epoch : data.batch_size / data.num_examples);
      const value = other === "steps" ? data.epochs / rate : data.steps * rate;
      delete data[now];
      data[other] = Math.max(1, Math.round(value));
      shared(container, state, changed);
      container.querySelector("[data-field=length]").focus();
      changed();
    }, texts);
  }

  const UNITS = {
    example: "one example",
    client: "one client, with all its data",
    user: "one user, with all examples",
  };
  const NEIGHBOURS = { zero_out: "without it (zero gradients)", replace: "with any other in its place" };

  /**
   * Whose data are protected, and from what; the usual unit is left out of the plan. A client is an example of the
   * plan, in other words; `renamed` is called when they change.
   */
  function unit(container, state, changed, renamed) {
    function draw(focus) {
      const own = state.unit ?? {};
      const { kind = "example", neighbours = "zero_out" } = own;
      const protect = (who) => {
        if (who === "client") state.clients = true;
        else delete state.clients;
        speak(state);
        renamed();
        set({ kind: who === "client" ? "example" : who }, 0);
      };
      const set = (values, place) => {
        const next = { ...own, ...values };
        if (next.kind !== "user") delete next.examples_per_user;
        else next.examples_per_user ??= RANGES.examples_per_user.start;
        if ((next.kind ?? "example") === "example" && (next.neighbours ?? "zero_out") === "zero_out") delete state.unit;
        else state.unit = next;
        draw(place);
        changed();
      };
      container.replaceChildren(
        choice("who is protected", ["unit", "kind"], Object.keys(UNITS), state.clients ? "client" : kind, protect, UNITS),
        ...(kind === "user" ? [slider("unit", own, "examples_per_user", changed)] : []),
        choice(
          "neighbouring data set",
          ["unit", "neighbours"],
          Object.keys(NEIGHBOURS),
          neighbours,
          (chosen) => set({ neighbours: chosen }, 1),
          NEIGHBOURS,
        ),
      );
      if (focus !== undefined) container.querySelectorAll("select")[focus].focus();
    }
    draw();
  }

  /**
   * One mechanism: its sampler, its strategy, and their options.
   * `changed` is called after every change, `removed` by its button (absent for the only mechanism).
   */
  function mechanism(tables, title, choices, changed, removed) {
    const box = element("fieldset", { class: "mechanism" });
    function draw(focus) {
      const sampler = choices.samplers[tables.sampler.kind];
      const strategy = choices.strategies[tables.strategy.kind];
      const again = (name) => {
        draw(name);
        changed();
      };
      box.replaceChildren(
        element("legend", {}, title),
        choice("sampler", ["sampler", "kind"], Object.keys(choices.samplers), tables.sampler.kind, (kind) => {
          tables.sampler = { kind };
          if (!choices.samplers[kind].strategies.includes(tables.strategy.kind)) tables.strategy = { kind: "identity" };
          again(0);
        }),
        ...(sampler?.fields ?? []).map((field) => option("sampler", tables.sampler, field, changed)),
        choice("noise strategy", ["strategy", "kind"], sampler?.strategies ?? [], tables.strategy.kind, (kind) => {
          const { bands } = tables.strategy;
          const banded = choices.strategies[kind].fields.some((field) => field.name === "bands");
          tables.strategy = banded && bands !== undefined ? { kind, bands } : { kind };
          again(1);
        }),
        ...(strategy?.fields ?? []).map((field) => option("strategy", tables.strategy, field, changed)),
      );
      if (removed) box.append(element("button", { type: "button", onclick: removed }, `Remove ${title.toLowerCase()}`));
      if (focus !== undefined) box.querySelectorAll("select.wide")[focus === 0 ? 0 : 1 + selects(sampler)].focus();
    }
    draw();
    return box;
  }

  const selects = (sampler) =>
    (sampler?.fields ?? []).filter((field) => !field.required && (field.choices || field.type === "boolean")).length;

  root.controls = { element, label, mechanism, shared, speak, unit, words };
})(globalThis);
