// The plan in the address: fields as "table.field=value", those of further mechanisms with their number in front.
"use strict";
(function (root) {
  const TABLES = ["data", "target", "unit", "noise"];
  const OWN = ["sampler", "strategy"];
  const MOST = 4;
  const FIELD = /^[a-z][a-z_]*$/;
  const NUMBER = /^-?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?$/i;

  const read = (text) =>
    text === "true" ? true : text === "false" ? false : NUMBER.test(text) ? Number(text) : text;

  /** The state that a fragment says, or null if it says none. */
  function parse(fragment) {
    const state = { ask: "noise_multiplier", data: {}, target: {}, mechanisms: [] };
    for (const [name, text] of new URLSearchParams(fragment)) {
      const parts = name.split(".");
      const place = /^[2-4]$/.test(parts[0]) ? Number(parts.shift()) - 1 : 0;
      const [table, field] = parts;
      const value = read(text);
      if (name === "clients") state.clients = value === true || undefined;
      else if (name === "ask" && (text === "epsilon" || text === "noise_multiplier")) state.ask = text;
      else if (name === "noise_multiplier" && typeof value === "number") state.noise_multiplier = value;
      else if (parts.length !== 2 || !FIELD.test(field)) continue;
      else if (TABLES.includes(table) && place === 0) (state[table] ??= {})[field] = value;
      else if (OWN.includes(table)) ((state.mechanisms[place] ??= { sampler: {}, strategy: {} })[table])[field] = value;
    }
    state.mechanisms = state.mechanisms.filter((mechanism) => mechanism && mechanism.sampler.kind).slice(0, MOST);
    for (const mechanism of state.mechanisms) mechanism.strategy.kind ??= "identity";
    return state.mechanisms.length > 0 && Object.keys(state.data).length > 0 ? state : null;
  }

  /** The fragment of a state. */
  function write(state) {
    const fragment = new URLSearchParams({ ask: state.ask });
    const add = (prefix, table) => {
      for (const [field, value] of Object.entries(table ?? {})) fragment.set(`${prefix}.${field}`, value);
    };
    for (const table of TABLES) add(table, state[table]);
    if (state.noise_multiplier !== undefined) fragment.set("noise_multiplier", state.noise_multiplier);
    if (state.clients) fragment.set("clients", true);
    state.mechanisms.forEach((mechanism, k) => {
      for (const table of OWN) add(k ? `${k + 1}.${table}` : table, mechanism[table]);
    });
    return fragment.toString();
  }

  /** The state of a plan as the server gives it. */
  function fromPlan(plan, ask) {
    const { data, target, unit, noise, sampler, strategy, mechanism, noise_multiplier } = plan;
    const state = { ask, data, target: target ?? {}, mechanisms: [{ sampler, strategy: strategy ?? { kind: "identity" } }] };
    const multiplier = noise_multiplier ?? mechanism?.noise_multiplier;
    if (unit) state.unit = unit;
    if (noise) state.noise = noise;
    if (multiplier !== undefined) state.noise_multiplier = multiplier;
    return state;
  }

  /** The plan of one mechanism of a state. */
  function plan(state, index) {
    const { sampler, strategy } = state.mechanisms[index];
    const content = { data: state.data, strategy, sampler, target: state.target };
    if (state.unit) content.unit = state.unit;
    if (state.noise) content.noise = state.noise;
    if (state.noise_multiplier !== undefined && state.ask === "epsilon") content.noise_multiplier = state.noise_multiplier;
    return content;
  }

  root.address = { parse, write, fromPlan, plan, MOST };
})(globalThis);
