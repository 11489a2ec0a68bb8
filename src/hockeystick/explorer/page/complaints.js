// Errors beside the field that they are about, in the words of the page.
"use strict";
(function (root) {
  const { element, label, words } = root.controls;
  let made = 0;

  /** A sentence of the server with the labels of the page in place of the names of the plan file. */
  function inWords(sentence) {
    return sentence
      .replace(/[Tt]he '(?:[a-z]+\.)?([a-z_]+)' field/g, (_, name) => `“${label(name)}”`)
      .replace(/'?\b(?:data|target|unit|sampler|strategy)\.([a-z_]+)\b'?/g, (_, name) => `“${label(name)}”`)
      .replace(/\b(?:num_examples|batch_size|batches_per_epoch|noise_multiplier|sampling_prob)\b/g, label)
      .replace(/kind = '([a-z_]+)'/g, (_, kind) => words(kind));
  }

  /** The control of the first field that a sentence names: of the mechanism in `box`, or of those that all share. */
  function control(sentence, box) {
    const [, table, name] = /'(?:([a-z]+)\.)?([a-z_]+)' field/.exec(sentence) ?? [];
    if (name === undefined) return null;
    const own = `[data-field="${name}"]${table ? `[data-table="${table}"]` : ""}`;
    return box?.querySelector(own) ?? document.querySelector(`#shared ${own}, #unit ${own}`);
  }

  /** Show what is wrong with the plans, given as {sentence, box}, in place of what was wrong before. */
  function show(complaints) {
    for (const problem of document.querySelectorAll(".problem")) {
      for (const input of problem.parentNode.querySelectorAll("input, select"))
        for (const name of ["aria-invalid", "aria-describedby"]) input.removeAttribute(name);
      problem.remove();
    }
    for (const { sentence, box } of complaints) {
      const input = control(sentence, box);
      const row = input?.closest(".row");
      if (!row || row.querySelector(".problem")) continue; // the same is wrong for another mechanism
      const id = `problem-${++made}`;
      row.append(element("p", { class: "problem error", id }, inWords(sentence)));
      for (const field of row.querySelectorAll("input, select")) field.setAttribute("aria-describedby", id);
      input.setAttribute("aria-invalid", "true");
    }
  }

  root.complaints = { inWords, show };
})(globalThis);
