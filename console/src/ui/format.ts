// How values are written for people.

/** word makes "waiting" of "RUN_STATE_WAITING". */
export function word(value: string | undefined): string {
  return (value ?? "").replace(/^(?:[A-Z]+_)+?(?:STATE|KIND|TYPE|SOURCE|BASIS|POLICY|LIFETIME|LEVEL)_/, "").toLowerCase().replaceAll("_", " ");
}

const absolute = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });

export function fullTime(text: string | undefined): string {
  return text ? absolute.format(new Date(text)) : "";
}

export function clockTime(text: string | undefined): string {
  return text ? clock.format(new Date(text)) : "";
}

export function duration(ms: number): string {
  if (!Number.isFinite(ms) || ms < 0) return "";
  if (ms < 1) return "<1 ms";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  const s = ms / 1000;
  if (s < 60) return `${s < 10 ? s.toFixed(1) : Math.round(s)} s`;
  const m = Math.floor(s / 60);
  if (m < 60) return `${m} min ${Math.round(s - m * 60)} s`;
  const h = Math.floor(m / 60);
  if (h < 48) return `${h} h ${m - h * 60} min`;
  return `${Math.floor(h / 24)} d ${h % 24} h`;
}

export function ago(text: string | undefined, now: number): string {
  if (!text) return "";
  const ms = now - Date.parse(text);
  if (ms < 0) return `in ${duration(-ms)}`;
  return ms < 1000 ? "now" : `${duration(ms)} ago`;
}

/** milliseconds reads a duration of the API, such as "1.5s", as milliseconds. */
export function milliseconds(text: string | undefined): number {
  return text ? Number.parseFloat(text) * 1000 : 0;
}

export function dollars(nano: string | undefined): string {
  if (!nano || nano === "0") return "";
  const n = Number(nano) / 1e9;
  return `$${n < 0.01 ? n.toPrecision(2) : n.toFixed(2)}`;
}

const grouped = new Intl.NumberFormat();

export function count(n: string | number | undefined): string {
  return grouped.format(Number(n ?? 0));
}

/** short writes a value in one line of at most n characters. */
export function short(value: unknown, n = 80): string {
  const text = typeof value === "string" ? value : (JSON.stringify(value) ?? "");
  const line = text.replace(/\s+/g, " ").trim();
  return line.length > n ? `${line.slice(0, n - 1)}…` : line;
}

export function pretty(value: unknown): string {
  return typeof value === "string" ? value : JSON.stringify(value, null, 2);
}
