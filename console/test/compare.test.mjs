// Two runs side by side, one visit in detail, and what is told before a run and of deliveries.
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { accessible, clean, picture } from "./browser.mjs";
import { graphs } from "./server.mjs";
import { fits, shown, suite } from "./suite.mjs";

const s = suite();

const fork = async (run, text) => {
  const made = await s.server.call(`/v1/runs/${run.id}:fork`, { visit: { nodeId: "margin", visit: 1 }, named: { text }, requestId: "fork-1" });
  return s.server.reach(made.id, "COMPLETED");
};

describe("Compare", { concurrency: false }, () => {
  let origin;
  let forked;
  test("Empty/Teaches", async () => {
    const page = await s.at("/compare");
    await shown(page, "No run to compare");
    await accessible(page, "compare-empty");
    clean(page);
  });
  test("Fork/AgainstItsOriginByDefault", async () => {
    const run = await s.server.start(graphs.diamond);
    origin = await s.server.reach(run.id, "COMPLETED");
    forked = await fork(origin, "another margin");
    const page = await s.at(`/runs/${forked.id}`);
    await page.getByRole("link", { name: "compare with its origin" }).click();
    const first = page.getByRole("region", { name: "First difference" });
    await first.getByText("margin", { exact: true }).waitFor();
    await first.getByRole("region", { name: "Result in the run" }).getByText("another margin").waitFor();
    await first.getByRole("region", { name: "Result in the base" }).getByText("did margin").waitFor();
    await page.getByRole("table", { name: "The two runs" }).getByRole("link").first().waitFor();
    await page.getByText("margin: named.text").waitFor();
    await page.locator(".plan .first-difference").first().waitFor();
    const visits = page.getByRole("table", { name: "Visits side by side" });
    assert.equal(await visits.locator("tbody tr").count(), 1, "only what differs");
    await page.getByLabel("with those that do not differ").check();
    await visits.getByRole("rowheader", { name: "figures" }).waitFor();
    await accessible(page, "compare");
    clean(page);
  });
  test("List/TwoThatAreChosen", async () => {
    const other = await s.server.start({ ...graphs.diamond, edges: graphs.diamond.edges.slice(1) });
    await s.server.reach(other.id, "COMPLETED");
    const page = await s.at("/runs");
    await page.getByRole("checkbox", { name: new RegExp(`${origin.id}$`) }).check();
    assert.equal(await page.getByRole("button", { name: "Compare", exact: true }).count(), 0, "one run is not enough");
    await page.getByRole("checkbox", { name: new RegExp(`${other.id}$`) }).check();
    await page.getByRole("button", { name: "Compare", exact: true }).click();
    await page.waitForURL(/\/compare\?/);
    assert.equal(new URL(page.url()).searchParams.get("base"), origin.id, "the earlier one is the base");
    await page.getByText("figures -> margin").waitFor();
    await page.keyboard.press("s");
    await page.waitForURL((u) => u.searchParams.get("run") === origin.id);
    clean(page);
  });
  test("Alone/SaysWhatIsMissing", async () => {
    const page = await s.at(`/compare?run=${origin.id}`);
    await page.getByRole("alert").first().waitFor();
    clean(page);
  });
  test("Look/Phone", async () => {
    const phone = await s.at(`/compare?run=${forked.id}`, { phone: true });
    await phone.getByRole("region", { name: "First difference" }).waitFor();
    assert.ok(await fits(phone), "nothing hangs over the edge");
    await picture(phone, "compare-phone");
    clean(phone);
  });
});

describe("Visit", { concurrency: false }, () => {
  test("Arguments/ThoseOfTheCall", async () => {
    const run = await s.server.start(graphs.rounds);
    await s.server.reach(run.id, "COMPLETED");
    const page = await s.at(`/runs/${run.id}?node=publish`);
    const panel = page.getByRole("complementary", { name: "Node publish" });
    await panel.getByRole("region", { name: "Arguments of the call" }).getByText("draft 3").waitFor();
    await panel.getByRole("list", { name: "Attempts" }).getByText("try 1").waitFor();
    await accessible(page, "run-visit");
    clean(page);
  });
  test("Attempts/WithTheirErrors", async () => {
    const run = await s.server.start(graphs.broken);
    await s.server.reach(run.id, "FAILED");
    const page = await s.at(`/runs/${run.id}?node=divide`);
    const panel = page.getByRole("complementary", { name: "Node divide" });
    await panel.getByRole("list", { name: "Attempts" }).getByText("division by zero").waitFor();
    await panel.getByRole("region", { name: "Arguments of the call" }).getByText("1/0").waitFor();
    clean(page);
  });
  test("Items/OneOfAMap", async () => {
    const run = await s.server.start(graphs.rounds);
    await s.server.reach(run.id, "COMPLETED");
    const page = await s.at(`/runs/${run.id}?node=notes`);
    const panel = page.getByRole("complementary", { name: "Node notes" });
    await panel.getByLabel("Item").selectOption("2");
    await panel.getByRole("region", { name: "Arguments of the call" }).getByText("speed").waitFor();
    clean(page);
  });
  test("Skipped/HasTheArgumentsOfTheGraph", async () => {
    const run = await s.server.start(graphs.broken);
    await s.server.reach(run.id, "FAILED");
    const page = await s.at(`/runs/${run.id}?node=after`);
    await page.getByRole("region", { name: "Arguments of the node" }).getByText("did {{ node }}").waitFor();
    clean(page);
  });
});

describe("Playground", { concurrency: false }, () => {
  test("Forecast/OfThePlanAsItIsEdited", async () => {
    const page = await s.at("/playground");
    await page.getByLabel("Plan", { exact: true }).fill("A -> B\nB -> C");
    const forecast = page.getByRole("region", { name: "Forecast of cost and time" });
    await forecast.getByText("Cost", { exact: true }).waitFor();
    await forecast.getByText("Time", { exact: true }).waitFor();
    await accessible(page, "playground");
    await page.getByLabel("Plan", { exact: true }).fill("A -> B\nB -> C\nC -> D");
    await page.getByText(/^4 calls of/).waitFor();
    await forecast.getByText("being made anew").waitFor({ state: "detached" });
    clean(page);
  });
});

describe("Webhooks", { concurrency: false }, () => {
  test("Deliveries/WithTheirState", async () => {
    await s.server.call("/v1/workflows", {
      form: "WORKFLOW_FORM_DEFINITION",
      source: "name: Called\ntriggers:\n  - {type: webhook, path: called, signature: token}\nsteps:\n  - {id: text, type: transform, template: hello}\n",
    });
    const { triggers } = await s.server.call("/v1/triggers:activate", { workflow: "called" });
    const headers = { Authorization: `Bearer ${triggers[0].secret}`, "Content-Type": "application/json" };
    const res = await fetch(`${s.server.url}/v1/hooks/default/called`, { method: "POST", headers, body: "{}" });
    assert.ok(res.ok, `${res.status}`);
    const page = await s.at("/webhooks");
    const table = page.getByRole("table", { name: "Deliveries of triggers" });
    await table.getByRole("link", { name: /^run_/ }).waitFor();
    await accessible(page, "webhooks");
    await page.getByRole("combobox", { name: "State" }).selectOption("failed");
    await page.getByText("No delivery matches.").waitFor();
    clean(page);
  });
  test("Run/NamesItsWebhooks", async () => {
    const run = await s.server.start(graphs.sleeping("1h"), { webhooks: [{ url: "https://example.com/hook" }] });
    const page = await s.at(`/runs/${run.id}?tab=result`);
    await page.getByText("https://example.com/hook").waitFor();
    clean(page);
  });
});
