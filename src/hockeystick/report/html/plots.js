// Plots of the reports and of the explorer: plain data in, accessible SVG out. It draws with d3 and fetches nothing.
//
//   hockeystick.plot(container, spec)       curves and bands
//   hockeystick.intervals(container, spec)  one interval a row
//   hockeystick.number(value, side)         six digits, rounded to the side of "upper" or "lower"
//
// Drawing into the same container again replaces the plot and keeps the open table and the focused point.
"use strict";
(function (root) {
  const d3 = root.d3;
  const HEIGHT = 300,
    MARGIN = { top: 12, right: 18, bottom: 46, left: 62 },
    ROW = 38;
  const NARROWEST = 280,
    WIDEST = 720,
    COLOURS = 6,
    NEAR = 60,
    FEW = 12;
  const DASHES = ["none", "9 3", "2 3", "9 3 2 3", "5 5", "14 4"];
  const SYMBOLS = [
    d3.symbolCircle,
    d3.symbolSquare,
    d3.symbolTriangle,
    d3.symbolDiamond,
    d3.symbolCross,
    d3.symbolStar,
  ];
  const NOT_BOUNDED = { lower: "no lower bound", upper: "no upper bound" };
  let plots = 0;

  const known = (value) => typeof value === "number" && Number.isFinite(value);

  /** Six significant digits; an upper bound is never rounded down, a lower bound never up. */
  function number(value, side) {
    if (!known(value)) return side in NOT_BOUNDED ? NOT_BOUNDED[side] : "unknown";
    let rounded = Number(value.toPrecision(6));
    const step = 10 ** (Math.floor(Math.log10(Math.abs(value) || 1)) - 5);
    if (side === "upper" && rounded < value) rounded = Number((rounded + step).toPrecision(6));
    if (side === "lower" && rounded > value) rounded = Number((rounded - step).toPrecision(6));
    const size = Math.abs(rounded);
    return size !== 0 && (size < 1e-4 || size >= 1e7) ? rounded.toExponential().replace("e+", "e") : String(rounded);
  }

  /** Where a bound was computed: all digits, unless only one side is known there and they can be rounded to it. */
  function place(x, lower, upper, side) {
    if (Number(number(x)) === x) return number(x);
    const only = known(lower) && known(upper) ? undefined : known(upper) ? "upper" : known(lower) ? "lower" : side;
    return only ? number(x, only) : String(x);
  }

  function interval(lower, upper) {
    if (!known(lower)) return `at most ${number(upper, "upper")}`;
    if (!known(upper)) return `at least ${number(lower, "lower")}`;
    return `at least ${number(lower, "lower")}, at most ${number(upper, "upper")}`;
  }

  function element(name, attributes = {}, text = null) {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (text !== null) made.textContent = text;
    return made;
  }

  // ---- scales and axes

  function scale(axis, values, range) {
    const log = axis.scale === "log";
    const usable = values.filter((value) => known(value) && (!log || value > 0));
    let [low, high] = axis.domain ?? d3.extent(usable);
    if (!known(low) || !known(high)) [low, high] = log ? [1e-3, 1] : [0, 1];
    if (low === high) [low, high] = log ? [low / 2, high * 2] : [low - 0.5, high + 0.5];
    const made = (log ? d3.scaleLog() : d3.scaleLinear()).domain([low, high]).range(range).clamp(true);
    if (axis.domain) return made;
    return log ? made.domain([roundedOut(low, Math.floor), roundedOut(high, Math.ceil)]) : made.nice();
  }

  /** The next 1, 2 or 5 times a power of ten. */
  function roundedOut(value, way) {
    const power = 10 ** Math.floor(Math.log10(value));
    const steps = way === Math.ceil ? [1, 2, 5, 10] : [10, 5, 2, 1];
    const beyond = (step) =>
      way === Math.ceil ? step * power >= value * (1 - 1e-12) : step * power <= value * (1 + 1e-12);
    return Number((steps.find(beyond) * power).toPrecision(1));
  }

  function tickText(value) {
    const size = Math.abs(value);
    return size !== 0 && (size < 1e-3 || size >= 1e5) ? d3.format("~e")(value) : d3.format("~g")(value);
  }

  function ticks(made, axis, count) {
    if (axis.scale !== "log") return made.ticks(count);
    const [low, high] = made.domain().map(Math.log10);
    if (high - low < 2.5) {
      const powers = d3.range(Math.floor(low), Math.ceil(high) + 1);
      const all = powers.flatMap((power) => [1, 2, 5].map((step) => Number(`${step}e${power}`)));
      return all.filter((value) => value >= made.domain()[0] && value <= made.domain()[1]);
    }
    const stride = Math.max(1, Math.ceil((high - low) / count));
    return d3.range(Math.ceil(low - 1e-9), Math.floor(high + 1e-9) + 1, stride).map((power) => Number(`1e${power}`));
  }

  function drawAxis(svg, axis, made, box) {
    const { horizontal, width, height } = box;
    const values = ticks(made, axis, horizontal ? Math.max(3, Math.floor(width / 90)) : 6);
    const draw = (horizontal ? d3.axisBottom(made) : d3.axisLeft(made)).tickValues(values).tickFormat(tickText);
    const place = horizontal ? `translate(0,${height - MARGIN.bottom})` : `translate(${box.left},0)`;
    const length = horizontal ? height - MARGIN.top - MARGIN.bottom : width - box.left - MARGIN.right;
    const group = svg.append("g").attr("class", "axis").attr("aria-hidden", "true").attr("transform", place);
    group.call(draw.tickSizeOuter(0));
    group
      .selectAll(".tick")
      .append("line")
      .attr("class", "grid")
      .attr(horizontal ? "y2" : "x2", horizontal ? -length : length);
    const label = svg.append("text").attr("class", "label").attr("aria-hidden", "true").text(axis.label);
    if (horizontal)
      label
        .attr("x", (box.left + width - MARGIN.right) / 2)
        .attr("y", height - 8)
        .attr("text-anchor", "middle");
    else
      label
        .attr("transform", `translate(14,${(height - MARGIN.bottom) / 2}) rotate(-90)`)
        .attr("text-anchor", "middle");
  }

  // ---- the frame of a plot: heading, drawing, read-out, table

  function frame(container, spec, height) {
    const key = `plot-${++plots}`;
    const before = container.querySelector("details.data");
    const focused = container.contains(document.activeElement) ? (document.activeElement.dataset ?? {}) : {};
    const width = Math.round(Math.min(WIDEST, Math.max(NARROWEST, container.clientWidth || WIDEST)));
    const figure = element("figure", { class: "plot" });
    const caption = element("figcaption");
    caption.append(element("strong", {}, spec.title));
    if (spec.description) caption.append(element("p", {}, spec.description));
    figure.append(caption);
    const svg = d3
      .create("svg")
      .attr("viewBox", `0 0 ${width} ${height}`)
      .attr("role", "group")
      .attr("aria-labelledby", `${key}-title ${key}-text`);
    svg.append("title").attr("id", `${key}-title`).text(spec.title);
    svg
      .append("desc")
      .attr("id", `${key}-text`)
      .text(spec.description || spec.title);
    figure.append(svg.node());
    const readout = element(
      "p",
      { class: "readout", "aria-hidden": "true" },
      "Use the arrow keys or the pointer to read the points.",
    );
    figure.append(readout);
    return { key, figure, svg, readout, width, height, open: before !== null && before.open, focused, readers: [] };
  }

  function finish(container, made, spec, columns, rows) {
    const details = element("details", { class: "data" });
    details.open = made.open;
    details.append(element("summary", {}, `Table: ${spec.title}`));
    const scroll = element("div", {
      class: "scroll",
      tabindex: "0",
      role: "region",
      "aria-label": `Table: ${spec.title}`,
    });
    const table = element("table");
    const head = table.createTHead().insertRow();
    for (const column of columns) head.append(element("th", { scope: "col" }, column));
    const body = table.createTBody();
    for (const cells of rows) {
      const line = body.insertRow();
      cells.forEach((cell, k) =>
        line.append(k === 0 ? element("th", { scope: "row" }, cell) : element("td", {}, cell)),
      );
    }
    scroll.append(table);
    details.append(scroll);
    made.figure.append(details);
    container.replaceChildren(made.figure);
    pointer(made);
    const reader = made.readers[Number(made.focused.reader)];
    if (reader) {
      reader.move(Number(made.focused.point));
      reader.node.focus();
    }
    watch(container, made, spec);
  }

  /** Draw again when the container gets another width. */
  function watch(container, made, spec) {
    container.hockeystickObserver?.disconnect();
    const observer = new ResizeObserver(() => {
      const width = Math.round(Math.min(WIDEST, Math.max(NARROWEST, container.clientWidth)));
      if (container.clientWidth > 0 && width !== made.width) made.again(container, spec);
    });
    observer.observe(container);
    container.hockeystickObserver = observer;
  }

  /** A keyboard-reachable cursor over points: {x, y, text} in the drawing's coordinates. */
  function reader(made, name, points, colour) {
    if (points.length === 0) return;
    const index = made.readers.length;
    const group = made.svg
      .append("g")
      .attr("class", `reader colour-${colour}`)
      .attr("tabindex", 0)
      .attr("role", "slider")
      .attr("aria-label", name)
      .attr("aria-valuemin", 1)
      .attr("aria-valuemax", points.length)
      .attr("data-reader", index);
    group.append("circle").attr("r", 6);
    const node = group.node();
    function move(wanted) {
      const at = Math.max(0, Math.min(points.length - 1, wanted || 0));
      const { x, y, text } = points[at];
      group
        .attr("transform", `translate(${x},${y})`)
        .attr("data-point", at)
        .attr("aria-valuenow", at + 1)
        .attr("aria-valuetext", text);
      return at;
    }
    const tell = () => {
      made.readout.textContent = `${name}: ${points[Number(node.dataset.point)].text}`;
    };
    const strides = {
      ArrowRight: 1,
      ArrowUp: 1,
      ArrowLeft: -1,
      ArrowDown: -1,
      PageUp: 10,
      PageDown: -10,
      Home: -Infinity,
      End: Infinity,
    };
    group
      .on("keydown", (event) => {
        if (!(event.key in strides)) return;
        event.preventDefault();
        move(Number(node.dataset.point) + strides[event.key]);
        tell();
      })
      .on("focus", tell);
    move(0);
    made.readers.push({ node, points, move, tell });
  }

  /** The pointer reads the nearest point. */
  function pointer(made) {
    made.svg
      .on("pointermove", (event) => {
        const [x, y] = d3.pointer(event);
        let best = { distance: NEAR };
        for (const reader of made.readers) {
          reader.points.forEach((point, k) => {
            const distance = Math.hypot(point.x - x, point.y - y);
            if (distance < best.distance) best = { distance, reader, k };
          });
        }
        made.svg.selectAll(".reader").classed("pointed", false);
        if (best.reader) {
          best.reader.move(best.k);
          best.reader.node.classList.add("pointed");
          best.reader.tell();
        }
      })
      .on("pointerleave", () => made.svg.selectAll(".reader").classed("pointed", false));
  }

  function legend(made, series) {
    const list = element("ul", { class: "legend" });
    series.forEach((curve, k) => {
      const item = element("li");
      const swatch = d3
        .create("svg")
        .attr("class", `swatch colour-${k % COLOURS}`)
        .attr("viewBox", "0 0 28 12")
        .attr("aria-hidden", "true");
      if (curve.lower && curve.upper && !curve.points)
        swatch.append("rect").attr("class", "band").attr("width", 28).attr("height", 12);
      if (curve.points)
        swatch
          .append("path")
          .attr("class", "symbol")
          .attr("transform", "translate(14,6)")
          .attr("d", d3.symbol(SYMBOLS[k % COLOURS], 50)());
      else
        swatch
          .append("path")
          .attr("class", curve.reference ? "reference" : "upper")
          .attr("d", curve.lower && curve.upper ? "M0,1H28" : "M0,6H28")
          .attr("stroke-dasharray", dash(curve, k));
      if (curve.lower && curve.upper && !curve.points)
        swatch.append("path").attr("class", "lower").attr("d", "M0,11H28");
      item.append(swatch.node(), element("span", {}, curve.name));
      list.append(item);
    });
    made.svg.node().before(list);
  }

  const dash = (curve, k) => (curve.reference ? "2 4" : DASHES[k % COLOURS]);

  // ---- curves and bands

  /**
   * spec: title, description, x and y: {label, scale: "linear" or "log", domain: [low, high] or absent},
   * series: each with name, x and either lower and upper, or y (arrays of one length; null: nothing is known there);
   * side: "upper" or "lower" if y is a bound that must be rounded to that side; points: true for marks without a line;
   * reference: true for a line to compare with (not in the table).
   */
  function plot(container, spec) {
    const made = frame(container, spec, HEIGHT);
    made.again = plot;
    const { svg, width } = made;
    const ends = (curve) => [curve.y, curve.lower, curve.upper].filter(Boolean);
    const across = scale(
      spec.x,
      spec.series.flatMap((curve) => curve.x),
      [MARGIN.left, width - MARGIN.right],
    );
    const up = scale(
      spec.y,
      spec.series.flatMap((curve) => ends(curve).flat()),
      [HEIGHT - MARGIN.bottom, MARGIN.top],
    );
    drawAxis(svg, spec.x, across, { horizontal: true, width, height: HEIGHT, left: MARGIN.left });
    drawAxis(svg, spec.y, up, { horizontal: false, width, height: HEIGHT, left: MARGIN.left });
    const shown = (axis) => (value) => known(value) && (axis.scale !== "log" || value > 0);
    const [onX, onY] = [shown(spec.x), shown(spec.y)];
    legend(made, spec.series);
    spec.series.forEach((curve, k) => {
      const group = svg
        .append("g")
        .attr("class", `series colour-${k % COLOURS}`)
        .attr("aria-hidden", "true");
      const indices = d3.range(curve.x.length);
      if (curve.lower && curve.upper) {
        const area = d3
          .area()
          .x((i) => across(curve.x[i]))
          .y1((i) => up(curve.upper[i]))
          .y0((i) => up(onY(curve.lower[i]) ? curve.lower[i] : up.domain()[0]))
          .defined((i) => onX(curve.x[i]) && onY(curve.upper[i]) && known(curve.lower[i]));
        group.append("path").attr("class", "band").attr("d", area(indices));
      }
      for (const [name, values] of [
        ["upper", curve.upper ?? curve.y],
        ["lower", curve.lower],
      ]) {
        if (!values) continue;
        const drawn = indices.filter((i) => onX(curve.x[i]) && onY(values[i]));
        const at = (i) => `translate(${across(curve.x[i])},${up(values[i])})`;
        if (curve.points || (curve.x.length <= FEW && !curve.reference)) {
          const mark = d3.symbol(SYMBOLS[k % COLOURS], 60)();
          group
            .selectAll(null)
            .data(drawn)
            .join("path")
            .attr("class", `symbol ${name}`)
            .attr("d", mark)
            .attr("transform", at);
        }
        if (!curve.points) {
          const line = d3
            .line()
            .x((i) => across(curve.x[i]))
            .y((i) => up(values[i]))
            .defined((i) => onX(curve.x[i]) && onY(values[i]));
          const path = group
            .append("path")
            .attr("class", curve.reference ? "reference" : name)
            .attr("d", line(indices));
          if (name === "upper") path.attr("stroke-dasharray", dash(curve, k));
        }
      }
    });
    const tabled = spec.series.filter((curve) => !curve.reference);
    const plain = tabled.every((curve) => curve.y);
    const rows = [];
    spec.series.forEach((curve, k) => {
      if (curve.reference) return;
      const points = [];
      curve.x.forEach((x, i) => {
        const top = curve.upper ?? curve.y ?? [];
        const value = curve.y ? number(curve.y[i], curve.side) : null;
        const here = curve.y ? value : interval(curve.lower?.[i], curve.upper?.[i]);
        const both = curve.y ? [value, value] : [number(curve.lower?.[i], "lower"), number(curve.upper?.[i], "upper")];
        const cells = plain ? [value] : both;
        const where = place(x, curve.lower?.[i], curve.upper?.[i], curve.side);
        rows.push([...(tabled.length > 1 ? [curve.name] : []), where, ...cells]);
        const height = onY(top[i]) ? top[i] : curve.lower?.[i];
        if (onX(x) && onY(height))
          points.push({ x: across(x), y: up(height), text: `${spec.x.label} ${where}, ${spec.y.label} ${here}` });
      });
      reader(made, curve.name, points, k % COLOURS);
    });
    const values = plain ? [spec.y.label] : [`${spec.y.label}, at least`, `${spec.y.label}, at most`];
    const names = [...(tabled.length > 1 ? ["series"] : []), spec.x.label, ...values];
    finish(container, made, spec, names, rows);
  }

  // ---- one interval a row

  /**
   * spec: title, description, x: as for plot, rows: each with name, lower, upper (null: nothing is known) and a note.
   * Rows without a bound are in the table only.
   */
  function intervals(container, spec) {
    const bounded = spec.rows.filter((row) => known(row.lower) || known(row.upper));
    const height = MARGIN.top + MARGIN.bottom + ROW * bounded.length;
    const made = frame(container, spec, height);
    made.again = intervals;
    const { svg, width } = made;
    const left = 12;
    const across = scale(
      spec.x,
      spec.rows.flatMap((row) => [row.lower, row.upper]),
      [left, width - MARGIN.right],
    );
    drawAxis(svg, spec.x, across, { horizontal: true, width, height, left });
    const group = svg.append("g").attr("class", "series colour-0").attr("aria-hidden", "true");
    const points = [];
    bounded.forEach((row, k) => {
      const top = MARGIN.top + ROW * k;
      const y = top + 26;
      group
        .append("text")
        .attr("class", "row")
        .attr("x", left)
        .attr("y", top + 14)
        .text(row.name);
      const ends = [row.lower, row.upper].map((value) =>
        known(value) && (spec.x.scale !== "log" || value > 0) ? across(value) : null,
      );
      if (ends[0] !== null && ends[1] !== null)
        group
          .append("rect")
          .attr("class", "bar")
          .attr("x", ends[0])
          .attr("y", y - 3)
          .attr("width", Math.max(1, ends[1] - ends[0]))
          .attr("height", 6);
      if (ends[0] !== null)
        group
          .append("path")
          .attr("class", "end lower")
          .attr("d", `M${ends[0]},${y - 7}v14l9,-7z`);
      if (ends[1] !== null)
        group
          .append("path")
          .attr("class", "end upper")
          .attr("d", `M${ends[1]},${y - 7}v14l-9,-7z`);
      const place = ends[1] ?? ends[0];
      if (place !== null)
        points.push({
          x: place,
          y,
          text: `${row.name}: ${spec.x.label} ${interval(row.lower, row.upper)}${row.note ? `; ${row.note}` : ""}`,
        });
    });
    reader(made, spec.title, points, 0);
    const notes = spec.rows.some((row) => row.note);
    const names = ["name", `${spec.x.label}, at least`, `${spec.x.label}, at most`, ...(notes ? ["note"] : [])];
    const rows = spec.rows.map((row) => [
      row.name,
      number(row.lower, "lower"),
      number(row.upper, "upper"),
      ...(notes ? [row.note ?? ""] : []),
    ]);
    finish(container, made, spec, names, rows);
  }

  root.hockeystick = { plot, intervals, number };
})(globalThis);
