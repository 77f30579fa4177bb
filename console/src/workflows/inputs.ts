// The inputs of a definition as a JSON Schema.
import { parse } from "yaml";
import type { WorkflowVersion } from "../api/types";
import type { Schema } from "../ui/form";

/** inputsOf reads them: a JSON Schema, or its properties alone, all of which must be given then. */
export function inputsOf(version: WorkflowVersion | undefined): Schema | undefined {
  if (version?.form === "WORKFLOW_FORM_GRAPH") return undefined;
  let inputs: unknown;
  try {
    inputs = (parse(version?.source ?? "") as { inputs?: unknown } | null)?.inputs;
  } catch {
    return undefined; // the server has accepted what this reader does not: the form is one field of JSON then
  }
  if (typeof inputs !== "object" || inputs === null) return { type: "object", properties: {} };
  const schema = inputs as Schema & Record<string, Schema>;
  if (schema.type === "object" || typeof schema.type === "string") return schema;
  const properties = Object.fromEntries(Object.entries(schema).map(([k, v]) => [k, typeof v === "string" ? { type: v } : v])) as Record<string, Schema>;
  const required = Object.entries(properties).filter(([, v]) => v.default === undefined);
  return { type: "object", properties, required: required.map(([k]) => k) };
}
