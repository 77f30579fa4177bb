// Schedules, limits, workers, actors, prices, memory, webhooks, settings; forks and amendments of runs.
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { accessible, clean, picture } from "./browser.mjs";
import { graphs } from "./server.mjs";
import { fits, shown, suite } from "./suite.mjs";

const s = suite();

describe("Empty", { concurrency: false }, () => {
  for (const [path, title] of [
    ["schedules", "No schedule yet"],
    ["limits", "No limit yet"],
    ["workers", "No worker is connected"],
    ["memory", "Nothing is remembered yet"],
    ["webhooks", "No webhook takes calls"],
  ]) {
    test(`${path}/Teaches`, async () => {
      const page = await s.at(`/${path}`);
      await shown(page, title);
      await page.locator(".command code").first().waitFor();
      await accessible(page, `${path}-empty`);
      clean(page);
    });
  }
});

describe("Pages", { concurrency: false }, () => {
  test("Schedules/CreatedStartedPausedAndDeleted", async () => {
    await s.server.call("/v1/workflows", { form: "WORKFLOW_FORM_DEFINITION", source: "name: Nightly\nsteps:\n  - {id: text, type: transform, template: done}\n" });
    const page = await s.at("/schedules");
    await page.getByRole("button", { name: "Create the first schedule" }).click();
    await page.getByLabel("Id", { exact: true }).fill("night");
    await page.getByLabel("When (cron)").fill("0 3 * * *");
    await page.getByRole("dialog").getByLabel("Workflow").fill("nightly");
    await page.getByRole("button", { name: "Create the schedule" }).click();
    const row = page.locator("tr", { hasText: "night" }).last();
    await row.getByRole("button", { name: "Start now" }).click();
    await row.getByRole("link", { name: /started/ }).waitFor();
    await row.getByRole("button", { name: "Pause" }).click();
    await row.getByRole("button", { name: "Resume" }).waitFor();
    await accessible(page, "schedules");
    const runs = await s.at("/runs?schedule=another");
    await shown(runs, "No run matches");
    await row.getByRole("button", { name: "Delete…" }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Delete" }).click();
    await shown(page, "No schedule yet");
    clean(page);
  });
  test("Limits/SetAndDeleted", async () => {
    const page = await s.at("/limits");
    await page.getByRole("button", { name: "Set the first limit" }).click();
    await page.getByLabel(/^Name/).fill("actor/http");
    await page.getByLabel("Calls at once").fill("5");
    await page.getByRole("button", { name: "Set the limit" }).click();
    await page.getByText("5 at once").waitFor();
    await accessible(page, "limits");
    await page.getByRole("button", { name: "Delete…" }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Delete" }).click();
    await shown(page, "No limit yet");
    clean(page);
  });
  test("Actors/FoundByName", async () => {
    const page = await s.at("/actors");
    await page.getByLabel("Name or description has").fill("starlark");
    await page.keyboard.press("Enter");
    await page.getByRole("table", { name: "Actors" }).getByText("starlark", { exact: true }).first().waitFor();
    await page.getByText("schema").first().click();
    await accessible(page, "actors");
    clean(page);
  });
  test("Prices/AddedAndImported", async () => {
    const page = await s.at("/prices");
    await page.getByRole("button", { name: "Import" }).click();
    await page.getByLabel(/^Prices \(JSON/).fill('[{"provider": "acme", "model": "big", "inputPerMillion": "1500000000", "outputPerMillion": "2000000000"}]');
    await page.getByRole("dialog").getByRole("button", { name: "Import" }).click();
    await page.getByRole("table", { name: "Prices" }).getByText("$1.50").first().waitFor();
    await accessible(page, "prices");
    clean(page);
  });
  test("Memory/WrittenFoundAndDeleted", async () => {
    const page = await s.at("/memory");
    await page.getByRole("button", { name: "Remember the first thing" }).click();
    await page.getByLabel("Text", { exact: true }).fill("Invoices go to Bern");
    await page.getByLabel("Key").fill("invoices");
    await page.getByRole("button", { name: "Remember it" }).click();
    await page.getByRole("button", { name: "Invoices go to Bern" }).waitFor();
    await page.getByLabel("Search by words").fill("invoices");
    await page.keyboard.press("Enter");
    await page.getByRole("button", { name: "Invoices go to Bern" }).click();
    const entry = page.getByRole("complementary", { name: "Entry" });
    await entry.getByText("namespace").first().waitFor();
    await accessible(page, "memory");
    const [download] = await Promise.all([page.waitForEvent("download"), page.getByRole("button", { name: "Export" }).click()]);
    assert.equal(download.suggestedFilename(), "memory.ndjson");
    await entry.getByRole("button", { name: "Delete…" }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Delete" }).click();
    await entry.waitFor({ state: "detached" });
    clean(page);
  });
  test("Settings/TellTheServerAndWhoCalls", async () => {
    const page = await s.at("/settings");
    await page.getByText("open", { exact: true }).waitFor();
    await page.getByText("default", { exact: true }).waitFor();
    await accessible(page, "settings");
    await page.getByRole("radio", { name: "dark" }).check();
    assert.equal(await page.evaluate(() => document.documentElement.dataset.theme), "dark");
    clean(page);
  });
  test("Look/Phone", async () => {
    for (const name of ["schedules", "limits", "workers", "actors", "prices", "memory", "webhooks", "settings"]) {
      const phone = await s.at(`/${name}`, { phone: true });
      await phone.getByRole("heading", { level: 1 }).waitFor();
      assert.ok(await fits(phone), `${name}: nothing hangs over the edge`);
      await picture(phone, `${name}-phone`);
      clean(phone);
    }
  });
});

describe("Run", { concurrency: false }, () => {
  test("Fork/FromANodeWithOtherArguments", async () => {
    const run = await s.server.start(graphs.diamond);
    await s.server.reach(run.id, "COMPLETED");
    const page = await s.at(`/runs/${run.id}?node=margin`);
    await page.getByRole("button", { name: "Fork from here…" }).click();
    await page.getByLabel("Arguments (JSON)").fill('{"text": "another margin"}');
    await accessible(page, "run-fork");
    await page.getByRole("button", { name: "Start the fork" }).click();
    await page.waitForURL((u) => u.pathname.startsWith("/runs/") && !u.pathname.endsWith(run.id));
    const id = new URL(page.url()).pathname.split("/").pop();
    await s.server.reach(id, "COMPLETED");
    const { visits } = await s.server.call(`/v1/runs/${id}/visits`);
    const of = (node) => visits.find((v) => v.nodeId === node);
    assert.equal(of("figures").reused, true);
    assert.deepEqual(of("margin").values, ["another margin"]);
    clean(page);
  });
  test("Amend/TheDifferenceFirstThenApplied", async () => {
    const run = await s.server.start(graphs.sleeping("1h"));
    const page = await s.at(`/runs/${run.id}?tab=amend`);
    const field = page.getByLabel("The graph as JSON");
    await field.waitFor();
    const graph = JSON.parse(await field.inputValue());
    graph.nodes.find((n) => n.id === "after").named.text = "something else";
    await field.fill(JSON.stringify(graph, null, 2));
    assert.ok(await page.getByRole("button", { name: "Apply it" }).isDisabled(), "the difference comes first");
    await page.getByRole("button", { name: "Show the difference" }).click();
    await page.getByText(/^after: /).waitFor();
    await accessible(page, "run-amend");
    await page.getByRole("button", { name: "Apply it" }).click();
    await page.waitForURL(/tab=graph/);
    const now = await s.server.call(`/v1/runs/${run.id}/graph`);
    assert.equal(now.graph.nodes.find((n) => n.id === "after").named.text, "something else");
    clean(page);
  });
});
