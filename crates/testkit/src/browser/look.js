// What is wrong with this page in a window of this width, as sentences. Everything on the page is within
// the window's height.
(width, expected) => {
  const faults = [];
  const fault = (what) => { if (!faults.includes(what)) faults.push(what); };
  const words = (text) => JSON.stringify(text.trim().replace(/\s+/g, " ").slice(0, 60));

  // The part of a rectangle that its scrolling ancestors show.
  const shown = (rect, element) => {
    let { left, top, right, bottom } = rect;
    for (let e = element; e && e !== document.body; e = e.parentElement) {
      if (e instanceof SVGElement && !(e instanceof SVGSVGElement)) continue;
      if (getComputedStyle(e).overflow === "visible") continue;
      const clip = e.getBoundingClientRect();
      left = Math.max(left, clip.left); right = Math.min(right, clip.right);
      top = Math.max(top, clip.top); bottom = Math.min(bottom, clip.bottom);
    }
    return { left, top, right, bottom };
  };
  const isSeen = (element) =>
    element.checkVisibility({ visibilityProperty: true, opacityProperty: true });

  // Every line of text that is seen: its words, where it is, how large its letters are.
  const lines = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const element = node.parentElement;
    if (!node.data.trim() || element.closest("script, style, title, desc") || !isSeen(element)) continue;
    const drawn = element.closest("svg");
    const style = getComputedStyle(element);
    let size = parseFloat(style.fontSize);
    if (drawn) {
      const m = element.getScreenCTM();
      size *= Math.hypot(m.a, m.b);
    }
    const range = document.createRange();
    range.selectNodeContents(node);
    const rects = drawn ? [element.getBoundingClientRect()] : range.getClientRects();
    for (const rect of rects) {
      if (drawn) {
        const frame = drawn.getBoundingClientRect();
        if (rect.left < frame.left - 0.5 || rect.right > frame.right + 0.5
          || rect.top < frame.top - 0.5 || rect.bottom > frame.bottom + 0.5) {
          fault(`${words(node.data)} leaves its drawing`);
        }
      }
      const { left, top, right, bottom } = shown(rect, element);
      if (right - left < 1 || bottom - top < 1) continue;
      lines.push({ text: node.data, element, drawn, style, size, left, top, right, bottom });
    }
  }

  for (const line of lines) {
    if (line.size < 12) fault(`${words(line.text)} is ${line.size.toFixed(1)} px small`);
    if (line.right > width + 0.5 || line.left < -0.5) fault(`${words(line.text)} leaves the window`);
  }

  // Less than a pixel is how boxes round; letters do not reach there.
  const overlap = (a, b) => Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1
    && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 1;
  lines.sort((a, b) => a.top - b.top);
  lines.forEach((line, at) => {
    for (const other of lines.slice(at + 1)) {
      if (other.top > line.bottom) break;
      // Boxes of lines of one paragraph may touch; the letters in them do not.
      if (!line.drawn && line.element === other.element) continue;
      if (overlap(line, other)) fault(`${words(line.text)} lies on ${words(other.text)}`);
    }
  });

  // Contrast as WCAG 2 defines it.
  const parse = (css) => {
    const [r, g, b, a = 1] = (css.match(/[\d.]+/g) ?? [0, 0, 0, 0]).map(Number);
    return css === "none" || css === "transparent" ? [0, 0, 0, 0] : [r, g, b, a];
  };
  const over = ([r, g, b, a], under) => [r, g, b].map((c, i) => c * a + under[i] * (1 - a));
  const luminance = (rgb) => {
    const [r, g, b] = rgb.map((c) => c / 255).map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const painted = (element) => {
    const style = getComputedStyle(element);
    if (element instanceof SVGTextContentElement) return [0, 0, 0, 0];
    const isShape = element instanceof SVGGeometryElement;
    return parse(isShape ? style.fill : style.backgroundColor);
  };
  const ground = (x, y) => {
    const layers = [];
    for (const element of document.elementsFromPoint(x, y)) {
      const colour = painted(element);
      if (colour[3] > 0) layers.push(colour);
      if (colour[3] === 1) break;
    }
    return layers.reduceRight((under, layer) => over(layer, under), [255, 255, 255]);
  };
  for (const line of lines) {
    const under = ground((line.left + line.right) / 2, (line.top + line.bottom) / 2);
    const ink = over(parse(line.drawn ? line.style.fill : line.style.color), under);
    const [light, dark] = [luminance(ink), luminance(under)].sort((a, b) => b - a);
    const ratio = (light + 0.05) / (dark + 0.05);
    const isLarge = line.size >= 24 || (line.size >= 18.66 && Number(line.style.fontWeight) >= 700);
    if (ratio < (isLarge ? 3 : 4.5)) {
      fault(`${words(line.text)} is pale: ${ratio.toFixed(2)} to 1, ${ink} on ${under}`);
    }
  }

  if (innerWidth !== width) fault(`the window is ${innerWidth} px wide`);
  const needed = document.documentElement.scrollWidth;
  if (needed > width) fault(`the page is ${needed} px wide`);

  const ids = new Set();
  for (const { id } of document.querySelectorAll("[id]")) {
    if (ids.has(id)) fault(`two elements are called ${id}`);
    ids.add(id);
  }
  for (const link of document.querySelectorAll("a[href^='#']")) {
    if (!ids.has(link.getAttribute("href").slice(1))) fault(`${link.getAttribute("href")} is nowhere`);
  }
  for (const element of document.querySelectorAll("[aria-labelledby]")) {
    for (const id of element.getAttribute("aria-labelledby").split(/\s+/)) {
      if (!document.getElementById(id)?.textContent.trim()) fault(`the label ${id} is nowhere or empty`);
    }
  }
  for (const drawing of document.querySelectorAll("svg, img")) {
    const named = drawing.matches("img[alt], svg[role=img][aria-labelledby], svg[role=img][aria-label]");
    if (!named && !drawing.closest("[aria-hidden=true]")) fault("a picture has no words for those who do not see it");
  }
  if (!document.documentElement.lang) fault("the page does not say its language");
  if (!document.title.trim()) fault("the page has no title");

  for (const selector of expected) {
    const element = document.querySelector(selector);
    const rect = element?.getBoundingClientRect();
    if (!rect || !isSeen(element) || rect.width < 1 || rect.height < 1) fault(`${selector} is not seen`);
  }
  return faults;
}
