// Chromium as the pages see it: what each test opens, what it looks at, and the pictures that it leaves.
import { execFileSync } from "node:child_process";
import { mkdirSync, readdirSync, statSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import assert from "node:assert/strict";
import { availableParallelism, loadavg } from "node:os";
import { join } from "node:path";
import { chromium } from "playwright-core";

const axe = createRequire(import.meta.url).resolve("axe-core/axe.min.js");
const pictures = process.env.PICTURES ?? join(import.meta.dirname, "../../bin/console/pictures");

export function findChromium() {
  for (const name of ["chromium", "chromium-browser", "google-chrome"]) {
    try {
      return execFileSync("which", [name], { encoding: "utf8" }).trim();
    } catch {
      // the next one
    }
  }
  throw new Error("there is no Chromium: scripts/ensure-browser installs it");
}

export async function launch() {
  mkdirSync(pictures, { recursive: true });
  return chromium.launch({ executablePath: findChromium(), args: ["--no-sandbox"] });
}

/** open is a fresh page that notes everything that a page must not do. */
export async function open(browser, { dark = false, phone = false } = {}) {
  const context = await browser.newContext({
    colorScheme: dark ? "dark" : "light",
    viewport: phone ? { width: 390, height: 844 } : { width: 1280, height: 800 },
    hasTouch: phone,
  });
  context.setDefaultTimeout(20_000);
  const page = await context.newPage();
  page.faults = [];
  page.on("pageerror", (err) => page.faults.push(`error: ${err.message}`));
  page.on("console", (m) => {
    // A refused request is what some tests are about; the browser logs it by itself.
    if (m.type() === "error" && !m.text().startsWith("Failed to load resource")) page.faults.push(`console: ${m.text()}`);
  });
  return page;
}

export async function picture(page, name) {
  await page.screenshot({ path: join(pictures, `${name}.png`), animations: "disabled" });
}

/** accessible runs axe on the page in light and dark. */
export async function accessible(page, name) {
  if (!(await page.evaluate(() => "axe" in window))) {
    // The policy of the page lets no script in; a debugger may.
    const { readFileSync } = await import("node:fs");
    await page.evaluate(readFileSync(axe, "utf8"));
  }
  for (const scheme of ["light", "dark"]) {
    await page.emulateMedia({ colorScheme: scheme });
    const found = await page.evaluate(async () => {
      const { violations } = await window.axe.run(document, { runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"] });
      return violations.map((v) => `${v.id} (${v.impact}): ${v.nodes.map((n) => `${n.target} ${n.failureSummary}`).slice(0, 3).join(" | ")}`);
    });
    assert.deepEqual(found, [], `${name}, ${scheme}`);
    await picture(page, `${name}-${scheme}`);
  }
  await page.emulateMedia({ colorScheme: null });
}

/** bundleSize is what all files of the console weigh in gzip, as they are committed. */
export function bundleSize() {
  const root = join(import.meta.dirname, "../../services/gateway/internal/console/bundle");
  return readdirSync(root, { recursive: true })
    .map((name) => statSync(join(root, name)))
    .reduce((n, file) => n + (file.isFile() ? file.size : 0), 0);
}

/** slack is by how much a machine that others keep busy may take longer; 1 is an idle one. */
export function slack() {
  const share = loadavg()[0] / availableParallelism();
  return share > 2 ? share : 1;
}

/** table prints rows under a title, and keeps them in a file beside the pictures. */
export function table(title, head, rows) {
  const line = (cells) => `| ${cells.map((c, i) => c.padEnd(Math.max(...[head, ...rows].map((r) => r[i].length)))).join(" | ")} |`;
  const text = [title, "", line(head), line(head.map((h, i) => "-".repeat(Math.max(...[head, ...rows].map((r) => r[i].length))))), ...rows.map(line), ""].join("\n");
  console.log(`\n${text}`);
  writeFileSync(join(pictures, "figures.md"), `# ${text}`);
}

/** clean asserts that no script failed and nothing was refused by the policy of the page. */
export function clean(page) {
  assert.deepEqual(page.faults, []);
}
