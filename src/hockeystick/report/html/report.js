// Draws the plots of a report from the data in the page.
"use strict";
{
  const specs = JSON.parse(document.getElementById("plots").textContent);
  for (const container of document.querySelectorAll("[data-plot]")) {
    const { kind, spec } = specs[Number(container.dataset.plot)];
    hockeystick[kind](container, spec);
  }
}
