// Finding and making the page's elements. A text is always set as text.

export const $ = (id) => document.getElementById(id);

export const make = (name, text = "", kind = "") => {
  const made = document.createElement(name);
  made.textContent = text;
  made.className = kind;
  return made;
};
