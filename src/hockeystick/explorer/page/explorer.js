// The page: asks the server while the form changes, shows the answers, and fetches certificates.
"use strict";
(function () {
  const { element, mechanism, shared, speak, unit, words } = globalThis.controls;
  const { complaints } = globalThis;
  const { number, plot } = globalThis.hockeystick;
  const { address } = globalThis;
  const SETTLED = 60, // milliseconds without a change before a question, an address, and a longer question
    WRITTEN = 150,
    STILL = 400,
    AGAIN = 700,
    POLL = 400,
    LOOKS = 3; // longer questions, each from where the last one came to
  const find = (id) => document.getElementById(id);
  let choices, state, cards = [];

  // ---- the server

  const query = new URLSearchParams(location.search);
  if (query.has("token")) sessionStorage.setItem("hockeystick-token", query.get("token"));
  const token = sessionStorage.getItem("hockeystick-token") ?? "";

  /** The reply of the server: {status, ...what it says}. */
  async function ask(path, { body, method = body ? "POST" : "GET", signal } = {}) {
    const headers = { Authorization: `Bearer ${token}` };
    if (body) headers["Content-Type"] = "application/json";
    try {
      const response = await fetch(`/api/${path}`, { method, headers, signal, body: body && JSON.stringify(body) });
      return { status: response.status, ...(response.status === 204 ? {} : await response.json()) };
    } catch (error) {
      if (error.name === "AbortError") throw error;
      return { status: 0, error: "The explorer's server does not answer; start 'hockeystick explore' again." };
    }
  }

  const pause = (milliseconds, signal) =>
    new Promise((resolve, reject) => {
      const timer = setTimeout(resolve, milliseconds);
      signal?.addEventListener("abort", () => {
        clearTimeout(timer);
        reject(new DOMException("superseded", "AbortError"));
      });
    });

  // ---- one mechanism's card

  class Card {
    constructor(index) {
      this.index = index;
      this.node = element("article", { class: `card colour-${index}`, "aria-label": `Mechanism ${index + 1}` });
      this.title = element("h3");
      this.answer = element("p", { class: "answer" });
      this.note = element("p", { class: "note" });
      this.certified = element("div", { class: "certified", hidden: true });
      this.progress = element("div", { hidden: true });
      this.certify = element("button", { type: "button", onclick: () => this.begin() }, "Certify");
      this.cancel = element("button", { type: "button", hidden: true, onclick: () => this.stop() }, "Cancel");
      const plan = element("button", { type: "button", onclick: () => this.savePlan() }, "Download plan");
      const row = element("p", { class: "buttons" }, this.certify, this.cancel, plan);
      this.node.append(this.title, this.answer, this.note, this.certified, this.progress, row);
    }

    get body() {
      return { plan: address.plan(state, this.index), ask: state.ask };
    }

    get name() {
      const { sampler, strategy } = state.mechanisms[this.index];
      const options = Object.entries(strategy).filter(([field]) => field !== "kind");
      const more = options.map(([field, value]) => `, ${value} ${words(field)}`).join("");
      const noise = strategy.kind === "identity" ? "independent noise" : words(strategy.kind);
      return `${this.index + 1}. ${words(sampler.kind)}, ${noise}${more}`;
    }

    /** Ask again: a question that is under way is dropped. */
    async ask() {
      this.asking?.abort();
      this.asking = new AbortController();
      this.forget();
      this.title.textContent = this.name;
      this.answer.classList.add("old");
      try {
        await this.follow(this.asking.signal);
      } catch (error) {
        if (error.name !== "AbortError") throw error;
      }
    }

    async follow(signal) {
      await pause(SETTLED, signal);
      let reply = await this.quick("moving", signal);
      for (let look = 0; look < LOOKS && reply.status === 200 && !reply.complete; look++) {
        await pause(STILL, signal);
        reply = await this.quick("still", signal);
      }
      if (!this.reply?.answer) return;
      await pause(STILL, signal);
      const { noise_multiplier, method } = this.reply.answer;
      const body = { ...this.body, noise_multiplier, method: method.upper };
      const more = await ask("details", { body, signal });
      if (more.status === 200) this.details = more;
      compare();
    }

    async quick(patience, signal) {
      let reply;
      for (;;) {
        const near = this.near?.ask === state.ask ? this.near.value : undefined;
        reply = await ask("quick", { body: { ...this.body, patience, near }, signal });
        if (reply.status !== 202) break;
        this.say("Compiling for this combination; on a new machine that takes up to a minute.");
        await pause(AGAIN, signal);
      }
      this.show(reply);
      return reply;
    }

    show(reply) {
      this.answer.classList.remove("old", "error");
      this.reply = reply.status === 200 ? reply : null;
      this.details = null;
      this.complaint = reply.status === 422 ? reply.error : null;
      complain();
      if (reply.status !== 200) {
        this.answer.textContent = "No answer";
        this.note.textContent = complaints.inWords(reply.error);
        this.note.classList.add("error");
      } else if (!reply.answer) {
        this.say(reply.complete === false ? "This takes longer than a quick answer may; Certify computes it." : "");
        this.answer.textContent = "No quick answer";
      } else {
        const { noise_multiplier, epsilon, method } = reply.answer;
        if (method.upper !== "gaussian") this.near = { ask: state.ask, value: noise_multiplier };
        const bound = `epsilon at most ${number(epsilon.upper, "upper")}`;
        const least = epsilon.lower === null ? "no quick lower bound" : `at least ${number(epsilon.lower, "lower")}`;
        const noise = `noise multiplier ${number(noise_multiplier, "upper")}`;
        this.answer.textContent = state.ask === "epsilon" ? bound : `${noise} is enough`;
        this.say(
          `${state.ask === "epsilon" ? "" : `${bound}, `}${least}, by ${method.upper}. ` +
            (state.clients
              ? `${reply.steps} rounds with ${number(reply.expected_batch)} clients on average.`
              : `${reply.steps} steps, batches of ${number(reply.expected_batch)} on average.`) +
            (reply.complete ? "" : " With more time it may be smaller."),
        );
      }
      compare();
    }

    get summary() {
      return `${this.name}: ${this.answer.textContent}${this.complaint ? `, ${this.note.textContent}` : ""}`;
    }

    say(text) {
      this.note.classList.remove("error");
      this.note.textContent = text;
    }

    // ---- certificates

    /** The plan has changed, so the certificate no longer belongs to it. */
    forget() {
      if (this.job) ask(`jobs/${this.job}`, { method: "DELETE" });
      this.job = null;
      this.certified.hidden = this.progress.hidden = this.cancel.hidden = true;
      this.certify.disabled = false;
    }

    async begin() {
      const { signal } = this.asking;
      this.certify.disabled = true;
      const begun = await ask("jobs", { body: this.body });
      if (signal.aborted) {
        // the plan has changed meanwhile, and has an answer of its own
        if (begun.job) ask(`jobs/${begun.job}`, { method: "DELETE" });
        return;
      }
      if (begun.status !== 201) return this.failed(begun.error);
      const job = (this.job = begun.job);
      this.certified.hidden = true;
      this.progress.hidden = this.cancel.hidden = false;
      const bar = element("progress", { "aria-label": "Certifying" });
      const text = element("p", { class: "note" });
      this.progress.replaceChildren(bar, text);
      this.cancel.focus();
      for (;;) {
        const now = await ask(`jobs/${job}`);
        if (this.job !== job) return;
        if (now.status !== 200) return this.failed(now.error);
        if (now.state === "done") return this.done(now.result);
        if (now.state === "cancelled") return this.failed("Cancelled.");
        if (now.state === "failed") return this.failed(now.error);
        text.textContent = now.state === "waiting" ? "waiting for its turn" : `${now.seconds} s, ${now.steps} steps of work done`;
        await pause(POLL);
      }
    }

    stop() {
      ask(`jobs/${this.job}`, { method: "DELETE" });
      this.cancel.disabled = true;
    }

    failed(reason) {
      this.settle();
      this.certified.replaceChildren(element("p", {}, complaints.inWords(reason)));
    }

    done(result) {
      this.settle();
      const { epsilon, method } = result;
      const least = epsilon.lower === null ? "" : `, at least ${number(epsilon.lower, "lower")}`;
      const save = element(
        "button",
        { type: "button", onclick: () => download("plan.certificate.json", result.file, "application/json") },
        "Download certificate",
      );
      const matrix = result.matrix === null ? [] : [this.matrixOf(result.matrix)];
      this.certified.replaceChildren(
        element("p", { class: "answer" }, `Certified: noise multiplier ${number(result.noise_multiplier, "upper")}`),
        element("p", {}, `epsilon at most ${number(epsilon.upper, "upper")}${least}, by ${method.upper}`),
        element("p", { class: "note" }, result.sentence),
        save,
        ...matrix,
      );
      save.focus();
      find("status").textContent = `${this.name}: certified.`;
    }

    /** Offers the file of the matrix, which has to lie beside the certificate to verify it. */
    matrixOf({ name, base64 }) {
      const bytes = Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
      const save = () => download(name, bytes, "application/octet-stream");
      const why = `${name} holds the matrix of this certificate; keep it in the same folder.`;
      return element("p", { class: "note" }, element("button", { type: "button", onclick: save }, "Download its matrix"), ` ${why}`);
    }

    settle() {
      const had = this.progress.contains(document.activeElement) || document.activeElement === this.cancel;
      this.job = null;
      this.progress.hidden = this.cancel.hidden = true;
      this.certify.disabled = this.cancel.disabled = this.certified.hidden = false;
      if (had) this.certify.focus();
    }

    async savePlan() {
      const reply = await ask("plan", { body: this.body });
      if (reply.status !== 200) return this.failed(reply.error);
      download("plan.toml", reply.file, "application/toml");
    }
  }

  function download(name, content, type) {
    const link = element("a", { href: URL.createObjectURL(new Blob([content], { type })), download: name });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  }

  // ---- all mechanisms together

  function compare() {
    const shown = cards.filter((card) => card.reply?.answer);
    const box = find("comparison");
    box.hidden = cards.length < 2 || shown.length === 0;
    if (!box.hidden) {
      const names = ["mechanism", "noise multiplier", "epsilon, at most", "epsilon, at least", "noise in the sums so far*"];
      const head = element("tr", {}, ...names.map((name) => element("th", { scope: "col" }, name)));
      const rows = shown.map((card) => {
        const { noise_multiplier, epsilon } = card.reply.answer;
        const error = card.details?.prefix_error;
        const cells = [
          number(noise_multiplier, "upper"),
          number(epsilon.upper, "upper"),
          epsilon.lower === null ? "none" : number(epsilon.lower, "lower"),
          card.details ? (error == null ? "takes too long" : number(error / card.reply.expected_batch)) : "",
        ];
        return element("tr", {}, element("th", { scope: "row" }, card.name), ...cells.map((cell) => element("td", {}, cell)));
      });
      box.replaceChildren(
        element("table", {}, element("thead", {}, head), element("tbody", {}, ...rows)),
        element(
          "p",
          { class: "note" },
          "* Root mean square over the steps of the noise in the sum of all mean gradients so far, in clipping norms: a " +
            "measure of usefulness, less is better. Noise multipliers of different strategies do not compare.",
        ),
      );
    }
    const drawn = shown.filter((card) => card.details?.curve);
    if (drawn.length > 0)
      plot(find("curves"), {
        title: "Upper bounds on delta by epsilon",
        description: "At the noise multipliers above. The true curves are at or below the computed points; lines join them for the eye.",
        x: { label: "epsilon" },
        y: { label: "delta", scale: "log" },
        series: drawn.map((card) => ({
          name: card.name,
          x: card.details.curve.epsilon,
          y: card.details.curve.delta,
          side: "upper",
        })),
      });
    else find("curves").replaceChildren();
    clearTimeout(compare.said);
    if (markOld()) return;
    compare.said = setTimeout(() => {
      find("status").classList.add("summary"); // until then it is the place of errors
      find("status").textContent = cards.map((card) => card.summary).join("; ");
    }, STILL);
  }

  /** What is wrong with the plans, beside the fields of the form. */
  function complain() {
    const boxes = find("mechanisms").children;
    const refused = cards.filter((card) => card.complaint);
    complaints.show(refused.map((card) => ({ sentence: card.complaint, box: boxes[card.index] })));
  }

  /** Whether an answer is still that of an earlier plan; the table and the curves are marked then. */
  function markOld() {
    const old = cards.some((card) => card.answer.classList.contains("old"));
    for (const section of ["comparison", "curves"]) find(section).classList.toggle("old", old);
    return old;
  }

  // ---- the form

  function changed() {
    clearTimeout(changed.written);
    changed.written = setTimeout(() => history.replaceState(null, "", `/#${address.write(state)}`), WRITTEN);
    for (const card of cards) card.ask();
    clearTimeout(compare.said);
    markOld();
  }

  function drawMechanisms() {
    const many = state.mechanisms.length > 1;
    const boxes = state.mechanisms.map((tables, k) => {
      const remove = () => {
        state.mechanisms.splice(k, 1);
        draw();
        find("add").focus();
      };
      return mechanism(tables, many ? `Mechanism ${k + 1}` : "Mechanism", choices, changed, many ? remove : null);
    });
    find("mechanisms").replaceChildren(...boxes);
    find("add").disabled = state.mechanisms.length >= address.MOST;
  }

  function draw() {
    for (const input of document.querySelectorAll("input[name=ask]")) input.checked = input.value === state.ask;
    speak(state);
    shared(find("shared"), state, changed);
    unit(find("unit"), state, changed, () => {
      shared(find("shared"), state, changed);
      drawMechanisms();
    });
    drawMechanisms();
    for (const card of cards) {
      card.asking?.abort();
      card.forget();
    }
    cards = state.mechanisms.map((_, k) => new Card(k));
    find("cards").replaceChildren(...cards.map((card) => card.node));
    changed();
  }

  async function begin() {
    const start = await ask("start");
    if (start.status !== 200) {
      find("status").textContent = start.error;
      return;
    }
    choices = start;
    state = address.parse(location.hash.slice(1)) ?? address.fromPlan(start.plan, start.ask);
    draw();
    addEventListener("hashchange", () => {
      state = address.parse(location.hash.slice(1)) ?? state;
      draw();
    });
    for (const input of document.querySelectorAll("input[name=ask]"))
      input.addEventListener("change", () => {
        state.ask = input.value;
        draw();
        input.focus();
      });
    find("add").addEventListener("click", () => {
      state.mechanisms.push(structuredClone(state.mechanisms.at(-1)));
      draw();
      document.querySelector(".mechanism:last-child select").focus();
    });
    find("plan").addEventListener("submit", (event) => event.preventDefault());
    find("skip").addEventListener("click", (event) => {
      event.preventDefault(); // the address is the plan
      find("answers").focus();
    });
  }

  begin();
})();
