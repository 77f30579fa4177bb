// What the build adds to the bundle: the hash of the sources that it was built from, which a Go test compares,
// and the licenses of the packages that are in it. All files but the hash are left in gzip, as they are sent.
import { createHash } from "node:crypto";
import { existsSync, readdirSync, readFileSync, realpathSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { gzipSync } from "node:zlib";
import type { Plugin } from "vite";

const hashName = "sources.txt";
const schemaFile = "../docs/workflow.schema.json";
const generated = "src/api/schema.d.ts";

/** hashSources is computed by services/gateway/internal/console/console_test.go likewise. */
function hashSources(root: string): string {
  const lines: string[] = [];
  for (const entry of readdirSync(root, { recursive: true, withFileTypes: true })) {
    const name = relative(root, join(entry.parentPath, entry.name)).replaceAll("\\", "/");
    const top = name.split("/")[0];
    if (!entry.isFile() || top === "node_modules" || top === "test" || name === generated) continue;
    const sum = createHash("sha256").update(readFileSync(join(root, name))).digest("hex");
    lines.push(`${name} ${sum}\n`);
  }
  // The editor has the schema of definitions in it.
  const schema = createHash("sha256").update(readFileSync(join(root, schemaFile))).digest("hex");
  lines.push(`${schemaFile} ${schema}\n`);
  lines.sort();
  return createHash("sha256").update(lines.join("")).digest("hex");
}

/** packageOf is the folder of the package that a module belongs to. */
function packageOf(id: string): string | undefined {
  for (let dir = dirname(id); dir.includes("node_modules"); dir = dirname(dir)) {
    const file = join(dir, "package.json");
    if (existsSync(file) && JSON.parse(readFileSync(file, "utf8")).version) return dir;
  }
  return undefined;
}

function licenses(modules: Iterable<string>): string {
  const dirs = new Set<string>();
  for (const id of modules) {
    const file = id.replace(/^\0/, "").split("?")[0] ?? "";
    const dir = file.includes("node_modules") && existsSync(file) ? packageOf(realpathSync(file)) : undefined;
    if (dir) dirs.add(dir);
  }
  const texts: string[] = [];
  for (const dir of dirs) {
    const { name, version, license } = JSON.parse(readFileSync(join(dir, "package.json"), "utf8"));
    const file = readdirSync(dir).find((f) => /^(licen[cs]e|copying)/i.test(f));
    if (!file) throw new Error(`${name} has no license text`);
    texts.push(`${name} ${version} (${license ?? "UNKNOWN"})\n\n${readFileSync(join(dir, file), "utf8").trim()}\n`);
  }
  texts.sort();
  return `The packages within the console of Epigraph, and their licenses.\n\n${texts.join(`\n${"-".repeat(72)}\n\n`)}`;
}

export function provenance(root: string): Plugin {
  const modules = new Set<string>();
  let out = "";
  return {
    name: "provenance",
    apply: "build",
    configResolved(config) {
      out = join(root, config.build.outDir);
    },
    generateBundle(_, bundle) {
      for (const chunk of Object.values(bundle)) {
        if (chunk.type === "chunk") for (const id of chunk.moduleIds) modules.add(id);
      }
      this.emitFile({ type: "asset", fileName: "licenses.txt", source: licenses(modules) });
      this.emitFile({ type: "asset", fileName: hashName, source: `${hashSources(root)}\n` });
    },
    closeBundle() {
      for (const entry of readdirSync(out, { recursive: true, withFileTypes: true })) {
        if (!entry.isFile() || entry.name === hashName) continue;
        const file = join(entry.parentPath, entry.name);
        writeFileSync(`${file}.gz`, gzipSync(readFileSync(file), { level: 9 }));
        rmSync(file);
      }
    },
  };
}
