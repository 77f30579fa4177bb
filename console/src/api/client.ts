// Calls of the REST API.
import { currentSession, refuse } from "./session";
import type { ErrorBody } from "./types";

/** ApiError is an answer that is no success, or the lack of an answer. */
export class ApiError extends Error {
  readonly status: number;
  readonly reason: string;
  readonly hint: string;
  readonly violations: { field?: string; description?: string }[];
  readonly requestId: string;

  constructor(status: number, body: Partial<ErrorBody>) {
    super(body.message || "the server gave no reason");
    this.status = status;
    this.reason = body.reason ?? "";
    this.hint = body.hint ?? "";
    this.violations = body.violations ?? [];
    this.requestId = body.requestId ?? "";
  }

  /** passing says that the same request may succeed later. */
  get passing(): boolean {
    return this.status === 0 || this.status === 429 || this.status >= 500;
  }
}

export type Query = Record<string, string | number | boolean | string[] | undefined>;

export function address(path: string, query: Query = {}): string {
  const out = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value === undefined || value === "") continue;
    for (const one of Array.isArray(value) ? value : [value]) out.append(name, String(one));
  }
  const text = out.toString();
  return text ? `${path}?${text}` : path;
}

export function credentials(): Record<string, string> {
  const { key, namespace } = currentSession();
  const out: Record<string, string> = {};
  if (key) out.Authorization = `Bearer ${key}`;
  if (namespace) out["X-Epigraph-Namespace"] = namespace;
  return out;
}

/** failure reads the error of an answer, and asks for a key where one is missing. */
export async function failure(res: Response): Promise<ApiError> {
  let body: Partial<ErrorBody> = {};
  try {
    body = await res.json();
  } catch {
    body = { message: `the server answered ${res.status} ${res.statusText}` };
  }
  const err = new ApiError(res.status, body);
  if (res.status === 401) refuse(err.message);
  return err;
}

export async function send(path: string, init: RequestInit): Promise<Response> {
  let res: Response;
  try {
    res = await fetch(path, { ...init, cache: "no-store", headers: { ...credentials(), ...init.headers } });
  } catch (cause) {
    if (init.signal?.aborted) throw cause;
    throw new ApiError(0, { message: "the server does not answer", hint: "see whether epigraph runs, and whether this machine reaches it" });
  }
  if (!res.ok) throw await failure(res);
  return res;
}

export async function get<T>(path: string, query?: Query, signal?: AbortSignal): Promise<T> {
  const res = await send(address(path, query), { signal });
  return (await res.json()) as T;
}

type Method = "POST" | "PUT" | "PATCH" | "DELETE";

async function change<T>(method: Method, path: string, body?: unknown, signal?: AbortSignal): Promise<T> {
  const headers: Record<string, string> = body === undefined ? {} : { "Content-Type": "application/json" };
  const res = await send(path, { method, headers, body: body === undefined ? undefined : JSON.stringify(body), signal });
  return (await res.json()) as T;
}

export function post<T>(path: string, body: unknown, signal?: AbortSignal): Promise<T> {
  return change<T>("POST", path, body, signal);
}

export function put<T>(path: string, body: unknown): Promise<T> {
  return change<T>("PUT", path, body);
}

export function patch<T>(path: string, body: unknown): Promise<T> {
  return change<T>("PATCH", path, body);
}

export function remove(path: string): Promise<unknown> {
  return change("DELETE", path);
}

/** requestId makes a request that changes something repeatable. */
export function requestId(): string {
  // randomUUID is there on secure origins only, which a plain address of another machine is not.
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (b) => b.toString(16).padStart(2, "0")).join("");
}
