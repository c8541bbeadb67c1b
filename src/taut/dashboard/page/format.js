// Numbers, sizes and times as the page writes them.

const formats = [];  // by digits: to make one takes longer than to use it

export const number = (value, digits = 0) => {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  formats[digits] ??= new Intl.NumberFormat("en", {maximumFractionDigits: digits, minimumFractionDigits: digits});
  return formats[digits].format(value);
};

// Three figures that count, for values of any size.
export const short = (value) => {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  if (size >= 1e6) return `${number(value / 1e6, 2)} M`;
  if (size >= 1e4) return `${number(value / 1e3, 1)} k`;
  if (size === 0 || size >= 100) return number(value);
  return size >= 0.001 ? String(Number(value.toPrecision(3))) : value.toExponential(1);
};

export const bytes = (value) => {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let at = 0;
  for (; value >= 1000 && at < 4; at++) value /= 1000;
  return `${number(value, at ? 1 : 0)} ${units[at]}`;
};

export const time = (seconds) => {
  const whole = Math.floor(seconds), two = (value) => String(value).padStart(2, "0");
  return whole < 3600 ? `${Math.floor(whole / 60)}:${two(whole % 60)}`
    : `${Math.floor(whole / 3600)}:${two(Math.floor(whole / 60) % 60)}:${two(whole % 60)}`;
};
