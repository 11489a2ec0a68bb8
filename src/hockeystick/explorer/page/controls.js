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
  const words = (name) => name.replaceAll("_", " ");
  let made = 0;

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
    const found = [];
    for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power++) {
      for (let digits = 10; digits < 100; digits++) {
        const value = Number(`${digits}e${power - 1}`);
        if (value >= low && value <= high && (!whole || Number.isInteger(value))) found.push(value);
      }
    }
    return found;
  }

  function nearest(steps, value) {
    let best = 0;
    steps.forEach((one, k) => {
      if (Math.abs(Math.log(one / value)) < Math.abs(Math.log(steps[best] / value))) best = k;
    });
    return best;
  }

  /** A slider and a number for one field of a table; `changed` is called after every change. */
  function slider(table, name, changed) {
    const range = RANGES[name] ?? { label: words(name), low: 1, high: 1e6, whole: true };
    const steps = ladder(range);
    const key = `control-${++made}`;
    const move = element("input", { type: "range", min: 0, max: steps.length - 1, step: 1, "aria-label": `${range.label}, slider` });
    const number = element("input", { type: "number", step: "any", id: key, "data-field": name });
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
    return element("div", { class: "row" }, element("label", { for: key }, range.label), move, number);
  }

  /** A list of choices; `texts` says those in other words. */
  function choice(label, options, value, changed, texts = {}) {
    const key = `control-${++made}`;
    const select = element("select", { id: key, class: "wide" });
    for (const one of options)
      select.append(element("option", { value: one, selected: one === value }, texts[one] ?? words(one)));
    select.addEventListener("change", () => changed(select.value));
    return element("div", { class: "row" }, element("label", { for: key }, label), select);
  }

  /** The control of one option of a sampler or a strategy. */
  function option(table, field, changed) {
    const set = (value) => {
      if (value === "") delete table[field.name];
      else table[field.name] = value;
      changed();
    };
    const label = RANGES[field.name]?.label ?? words(field.name);
    if (field.required) {
      table[field.name] ??= RANGES[field.name]?.start ?? 1;
      return slider(table, field.name, changed);
    }
    const value = table[field.name] ?? field.default ?? "";
    if (field.choices) return choice(label, field.default === null ? ["", ...field.choices] : field.choices, value, set);
    if (field.type === "boolean") return choice(label, ["true", "false"], String(value), (text) => set(text === "true"));
    const key = `control-${++made}`;
    const number = element("input", { type: "number", step: "any", id: key, class: "wide", value });
    number.addEventListener("input", () => set(number.value === "" ? "" : Number(number.value)));
    return element("div", { class: "row" }, element("label", { for: key }, `${label} (optional)`), number);
  }

  /** The fields that all mechanisms share. */
  function shared(container, state, changed) {
    const rows = Object.keys(state.data).map((name) => slider(state.data, name, changed));
    state.target.delta ??= 1e-5;
    if (state.ask === "epsilon") {
      state.noise_multiplier ??= 1;
      rows.push(slider(state, "noise_multiplier", changed));
    } else {
      state.target.epsilon ??= 2;
      rows.push(slider(state.target, "epsilon", changed));
    }
    container.replaceChildren(...rows, slider(state.target, "delta", changed));
  }

  const UNITS = { example: "one example", user: "one user, with all examples" };
  const NEIGHBOURS = { zero_out: "without it (zero gradients)", replace: "with any other in its place" };

  /** Whose data are protected, and from what; the usual unit is left out of the plan. */
  function unit(container, state, changed) {
    function draw(focus) {
      const own = state.unit ?? {};
      const { kind = "example", neighbours = "zero_out" } = own;
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
        choice("who is protected", Object.keys(UNITS), kind, (one) => set({ kind: one }, 0), UNITS),
        ...(kind === "user" ? [slider(own, "examples_per_user", changed)] : []),
        choice("neighbouring data set", Object.keys(NEIGHBOURS), neighbours, (one) => set({ neighbours: one }, 1), NEIGHBOURS),
      );
      if (focus !== undefined) container.querySelectorAll("select")[focus].focus();
    }
    draw();
  }

  /**
   * One mechanism: its sampler, its strategy, and their options.
   * `changed` is called after every change, `removed` by its button (absent for the only mechanism).
   */
  function mechanism(one, title, choices, changed, removed) {
    const box = element("fieldset", { class: "mechanism" });
    function draw(focus) {
      const sampler = choices.samplers[one.sampler.kind];
      const strategy = choices.strategies[one.strategy.kind];
      const again = (name) => {
        draw(name);
        changed();
      };
      box.replaceChildren(
        element("legend", {}, title),
        choice("sampler", Object.keys(choices.samplers), one.sampler.kind, (kind) => {
          one.sampler = { kind };
          if (!choices.samplers[kind].strategies.includes(one.strategy.kind)) one.strategy = { kind: "identity" };
          again(0);
        }),
        ...(sampler?.fields ?? []).map((field) => option(one.sampler, field, changed)),
        choice("noise strategy", sampler?.strategies ?? [], one.strategy.kind, (kind) => {
          const { bands } = one.strategy;
          const banded = choices.strategies[kind].fields.some((field) => field.name === "bands");
          one.strategy = banded && bands !== undefined ? { kind, bands } : { kind };
          again(1);
        }),
        ...(strategy?.fields ?? []).map((field) => option(one.strategy, field, changed)),
      );
      if (removed) box.append(element("button", { type: "button", onclick: removed }, `Remove ${title.toLowerCase()}`));
      if (focus !== undefined) box.querySelectorAll("select.wide")[focus === 0 ? 0 : 1 + selects(sampler)].focus();
    }
    draw();
    return box;
  }

  const selects = (sampler) =>
    (sampler?.fields ?? []).filter((field) => !field.required && (field.choices || field.type === "boolean")).length;

  root.controls = { element, shared, unit, mechanism, words };
})(globalThis);
