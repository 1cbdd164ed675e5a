// What an accessibility checker would complain of, in what the page shows at the moment.
(() => {
  const wrong = [];
  const shown = element => element.checkVisibility({ visibilityProperty: true });
  const all = selector => [...document.querySelectorAll(selector)].filter(shown);
  const name = element => `${element.tagName.toLowerCase()}#${element.id}.${element.getAttribute('class') || ''} "${(element.textContent || '').trim().slice(0, 40)}"`;
  const check = (right, what) => { if (!right) wrong.push(what); };

  check(document.documentElement.lang, 'the page has no language');
  check(document.title.trim(), 'the page has no title');
  check(all('main').length === 1 && all('header').length === 1, 'one main part and one header');

  const headings = all('h1, h2, h3, h4, h5, h6').map(heading => Number(heading.tagName[1]));
  check(headings.filter(level => level === 1).length === 1 && headings[0] === 1, `one h1, and first: ${headings}`);
  headings.forEach((level, at) => check(at === 0 || level <= headings[at - 1] + 1, `no level is left out: ${headings}`));

  const ids = [...document.querySelectorAll('[id]')].map(element => element.id);
  check(new Set(ids).size === ids.length, `ids are used once: ${ids.filter((id, at) => ids.indexOf(id) !== at)}`);
  for (const attribute of ['aria-labelledby', 'aria-describedby', 'for']) {
    for (const element of document.querySelectorAll(`[${attribute}]`)) {
      for (const id of element.getAttribute(attribute).split(' ')) check(document.getElementById(id), `${attribute} of ${name(element)} names nothing`);
    }
  }
  for (const control of all('input, select, textarea')) {
    check([...control.labels].some(label => shown(label) && label.textContent.trim()), `${name(control)} has no label`);
  }
  for (const button of all('button')) {
    check(button.textContent.trim(), `${name(button)} says nothing`);
    const label = button.getAttribute('aria-label');
    check(!label || label.toLowerCase().startsWith(button.textContent.replace('…', '').trim().toLowerCase()), `${name(button)} is called otherwise than it shows: ${label}`);
  }
  for (const control of all('button, input, select')) {
    const { width, height } = control.getBoundingClientRect();
    check(width >= 24 && height >= 24, `${name(control)} is small: ${width} x ${height}`);
  }
  for (const cell of all('th')) check(['row', 'col'].includes(cell.getAttribute('scope')), `${name(cell)} has no scope`);
  for (const part of all('section')) check(part.hasAttribute('aria-labelledby') || part.hasAttribute('aria-label'), `${name(part)} has no name`);
  for (const plot of all('svg')) {
    check(plot.getAttribute('aria-hidden') === 'true' || (plot.getAttribute('role') === 'img' && plot.getAttribute('aria-label')), `a plot has no text: ${name(plot)}`);
  }
  for (const element of document.querySelectorAll('*')) {
    check(element.tabIndex <= 0, `${name(element)} is out of the order`);
    for (const { name: attribute } of element.attributes) check(!/^(on|style$)/.test(attribute), `${name(element)} has ${attribute}`);
  }

  // Contrast, as WCAG 2 counts it.
  const numbers = colour => colour.match(/[\d.]+/g).map(Number);
  const light = colour => {
    const [red, green, blue] = numbers(colour).map(part => part / 255).map(part => part <= .04045 ? part / 12.92 : ((part + .055) / 1.055) ** 2.4);
    return .2126 * red + .7152 * green + .0722 * blue;
  };
  const back = element => {
    for (let at = element; at; at = at.parentElement) {
      const colour = getComputedStyle(at).backgroundColor;
      const [, , , alpha = 1] = numbers(colour);
      if (alpha > 0) return colour;
    }
    return 'rgb(255, 255, 255)';
  };
  let seen = 0;
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const element = texts.currentNode.parentElement;
    if (!texts.currentNode.textContent.trim() || !shown(element) || ['SCRIPT', 'STYLE', 'title'].includes(element.tagName) || element.disabled) continue;
    const style = getComputedStyle(element), size = parseFloat(style.fontSize);
    const is_large = size >= 24 || (size >= 18.66 && style.fontWeight >= 700);
    const [one, other] = [light(element instanceof SVGElement ? style.fill : style.color), light(back(element))].sort((a, b) => b - a);
    const contrast = (one + .05) / (other + .05);
    check(contrast >= (is_large ? 3 : 4.5), `${name(element)} has a contrast of ${contrast.toFixed(2)}`);
    seen++;
  }
  check(seen > 5, `only ${seen} texts were seen`);
  return wrong;
})()
