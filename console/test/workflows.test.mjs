// Workflows, before a real server.
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { accessible, clean, picture } from "./browser.mjs";
import { fits, shown, suite } from "./suite.mjs";

const s = suite();

const greeting = (text, more = "") => `name: Greeting
description: Greets somebody.
tags: [example]
inputs:
  name: {type: string, description: Who is greeted}
${more}steps:
  - {id: text, type: transform, template: "${text} {{ inputs.name }}"}
`;

describe("Workflows", { concurrency: false }, () => {
  test("Editor/FaultsAtTheirPlaceThenTheFirstVersion", async () => {
    const page = await s.at("/workflows");
    await shown(page, "No workflow yet");
    await accessible(page, "workflows-empty");
    await page.getByRole("link", { name: "Write the first one in the editor" }).click();
    await page.getByRole("button", { name: "A greeting" }).click();
    const field = page.getByRole("textbox", { name: "Definition" });
    await page.getByText(/^valid: /).waitFor();
    await field.fill(greeting("Hello").replace("inputs.name }}", "inputs.nobody }}"));
    await page.locator("mark.error").first().waitFor({ state: "attached" });
    assert.ok(await page.getByRole("button", { name: "Create the workflow" }).isDisabled());
    await accessible(page, "workflow-editor");
    await field.fill(greeting("Hello"));
    await page.getByText(/^valid: /).waitFor();
    await page.getByRole("button", { name: "Create the workflow" }).click();
    await page.waitForURL(/\/workflows\/greeting$/);
    await page.getByRole("button", { name: /text/ }).waitFor();
    await accessible(page, "workflow");
    clean(page);
  });
  test("Editor/TellsTheMeaningOfTheKeyAtHand", async () => {
    const page = await s.at("/workflows/new");
    const field = page.getByRole("textbox", { name: "Definition" });
    await field.fill("budget: ");
    await page.getByRole("region", { name: "Keys" }).getByText(/What a run may use/).first().waitFor();
    clean(page);
  });
  test("Versions/ASecondOneAndTheDifference", async () => {
    const page = await s.at("/workflows/greeting?tab=edit");
    const field = page.getByRole("textbox", { name: "Definition" });
    await field.fill(greeting("Good morning"));
    await page.getByText(/^valid: /).waitFor();
    await page.getByRole("button", { name: "Publish a new version" }).click();
    await page.waitForURL(/\/workflows\/greeting$/);
    await page.getByRole("button", { name: "Versions", exact: true }).click();
    const diff = page.getByRole("region", { name: "Difference" });
    await diff.getByText(/Good morning/).first().waitFor();
    await accessible(page, "workflow-versions");
    clean(page);
  });
  test("Aliases/SetByWeight", async () => {
    const page = await s.at("/workflows/greeting?tab=versions");
    await page.getByRole("button", { name: "New alias" }).click();
    await page.getByLabel("Name", { exact: true }).fill("prod");
    await page.getByLabel("Versions by weight").fill("1=90 2=10");
    await page.getByRole("button", { name: "Set the alias" }).click();
    await page.getByRole("button", { name: "Move prod", exact: true }).waitFor();
    const w = await s.server.call("/v1/workflows/greeting");
    assert.deepEqual(w.aliases[0].versions.map((v) => [v.version, v.weight]), [["1", 90], ["2", 10]]);
    clean(page);
  });
  test("Start/AFormFromItsInputs", async () => {
    const page = await s.at("/workflows/greeting?tab=start");
    await page.getByText("Who is greeted").waitFor();
    await accessible(page, "workflow-start");
    await page.getByLabel("name", { exact: false }).last().fill("Ann");
    await page.getByRole("button", { name: "Start the run" }).click();
    await page.waitForURL(/\/runs\/run_/);
    const run = await s.server.reach(new URL(page.url()).pathname.split("/").pop(), "COMPLETED");
    assert.equal(run.workflow, "greeting@2");
    assert.match(JSON.stringify(run.result), /Good morning Ann/);
    clean(page);
  });
  test("Forecast/FromItsRuns", async () => {
    const page = await s.at("/workflows/greeting");
    await page.getByRole("region", { name: "Forecast of cost and time" }).getByText(/1 runs|half of/).first().waitFor({ timeout: 20_000 });
    clean(page);
  });
  test("Discovery/ByWordsAndSteps", async () => {
    await s.server.call("/v1/workflows", { form: "WORKFLOW_FORM_DEFINITION", source: "name: Refund letter\ndescription: Writes a letter about a refund.\nsteps:\n  - {id: ask, type: human, message: fine}\n" });
    const page = await s.at("/workflows");
    await shown(page, "refund-letter");
    await accessible(page, "workflows");
    await page.getByLabel("Types of steps").fill("human");
    await page.keyboard.press("Enter");
    const first = page.getByRole("table", { name: "Workflows found" }).locator("tbody tr").first();
    await first.getByText("refund-letter").waitFor();
    await accessible(page, "workflows-found");
    clean(page);
  });
  test("Triggers/TurnedOnAndTheSecretShownOnce", async () => {
    await s.server.call("/v1/workflows", {
      form: "WORKFLOW_FORM_DEFINITION",
      source: "name: Hooked\ninputs: {type: object, properties: {day: {type: string}}}\ntriggers:\n  - {type: webhook, path: hooked, signature: token}\nsteps:\n  - {id: text, type: transform, template: hello}\n",
    });
    const page = await s.at("/workflows/hooked?tab=triggers");
    await page.getByRole("button", { name: "Turn the triggers on" }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Turn them on" }).click();
    await page.getByText(/is shown this once/).waitFor();
    await page.getByRole("table", { name: "Triggers" }).getByText("active").waitFor();
    const secret = (await page.locator(".explain code").textContent()).trim();
    const res = await fetch(`${s.server.url}/v1/hooks/default/hooked`, { method: "POST", headers: { Authorization: `Bearer ${secret}`, "Content-Type": "application/json" }, body: '{"day": "today"}' });
    assert.ok(res.ok, `${res.status} ${await res.text()}`);
    await page.reload();
    assert.equal(await page.getByText(/is shown this once/).count(), 0);
    await page.getByRole("table", { name: "Deliveries of triggers" }).getByRole("link", { name: /^run_/ }).waitFor();
    await accessible(page, "workflow-triggers");
    clean(page);
  });
  test("Exposed/AndDeprecated", async () => {
    const page = await s.at("/workflows/greeting");
    await page.getByRole("button", { name: "Expose…" }).click();
    await page.getByRole("button", { name: "Expose it" }).click();
    await page.getByText(/^exposed: /).waitFor();
    await page.getByRole("button", { name: "Deprecate…" }).click();
    await page.getByLabel("Why, and what is to be used instead").fill("use hooked");
    await page.getByRole("button", { name: "Deprecate it" }).click();
    await page.getByText("Deprecated: use hooked").waitFor();
    clean(page);
  });
  test("Look/Phone", async () => {
    for (const [path, name] of [["/workflows", "workflows-phone"], ["/workflows/greeting?tab=edit", "workflow-phone"]]) {
      const phone = await s.at(path, { phone: true });
      await phone.getByText(/greeting|Definition|valid/i).first().waitFor();
      assert.ok(await fits(phone), `${name}: nothing hangs over the edge`);
      await picture(phone, name);
      clean(phone);
    }
  });
});
