// The published schema of definitions, of which the editor tells what may stand where.
import { useQuery } from "@tanstack/react-query";

interface Schema {
  description?: string;
  properties?: Record<string, Schema>;
  definitions?: Record<string, Schema>;
  items?: Schema;
  anyOf?: Schema[];
  $ref?: string;
  enum?: unknown[];
}

export interface Key {
  name: string;
  about: string;
}

async function load(): Promise<Schema> {
  const { default: text } = await import("../../../docs/workflow.schema.json?raw");
  return JSON.parse(text);
}

/** useSchema is read with the editor alone: it is larger than a page. */
export function useSchema() {
  return useQuery({ queryKey: ["workflow schema"], queryFn: load, staleTime: Number.POSITIVE_INFINITY });
}

function resolve(root: Schema, s: Schema | undefined): Schema | undefined {
  if (!s?.$ref) return s;
  return root.definitions?.[s.$ref.split("/").pop() ?? ""];
}

/** keysOf lists the keys of a definition, of one of its named parts, with what they mean. */
export function keysOf(root: Schema, part: string): Key[] {
  const at = part ? root.definitions?.[part] : root;
  return Object.entries(at?.properties ?? {})
    .map(([name, of]) => ({ name, about: of.description ?? resolve(root, of)?.description ?? "" }))
    .sort((a, b) => (a.name < b.name ? -1 : 1));
}

/** partsOf are the parts of a definition that have keys of their own. */
export function partsOf(root: Schema): string[] {
  return Object.entries(root.definitions ?? {})
    .filter(([, s]) => s.properties)
    .map(([name]) => name)
    .sort();
}

/** wordAt is the key in the line of a place in a text. */
export function wordAt(text: string, at: number): string {
  const start = text.lastIndexOf("\n", at - 1) + 1;
  const end = text.indexOf("\n", at);
  const line = text.slice(start, end < 0 ? undefined : end);
  return /["']?([A-Za-z_][\w-]*)["']?\s*:/.exec(line)?.[1] ?? "";
}
