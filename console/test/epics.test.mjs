// Epics, before a real server.
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { accessible, clean, picture } from "./browser.mjs";
import { until } from "./server.mjs";
import { fits, shown, suite } from "./suite.mjs";

const s = suite();

/** epic makes an epic of three tasks, of which the second follows the first. */
async function epic(title) {
  const made = await s.server.call("/v1/epics", { title, tags: ["sales"], budgetNanoUsd: "2000000000", description: "Everything that is needed." });
  const task = (name, more) => s.server.call("/v1/tasks", { epicId: made.id, title: name, ...more });
  const first = await task("Write the page");
  const second = await task("Publish the page", { dependsOn: [first.id] });
  await task("Tell the press");
  return { id: made.id, first: first.id, second: second.id };
}

describe("Epics", { concurrency: false }, () => {
  test("Empty/TeachesAndCreatesTheFirst", async () => {
    const page = await s.at("/epics");
    await shown(page, "No epic yet");
    await accessible(page, "epics-empty");
    await page.getByRole("button", { name: "Create the first epic" }).click();
    await page.getByLabel("Title", { exact: true }).fill("Launch the release");
    await page.getByRole("dialog").getByLabel("Tags").fill("launch, 2026");
    await page.getByLabel("Budget in dollars").fill("1.5");
    await accessible(page, "epic-form");
    await page.getByRole("button", { name: "Create the epic" }).click();
    await page.waitForURL(/\/epics\/ep_/);
    await page.getByRole("heading", { name: "Launch the release" }).waitFor();
    await page.getByRole("button", { name: "Add the first task" }).click();
    await page.getByLabel("Title", { exact: true }).fill("Write notes");
    await page.getByRole("button", { name: "Add the task" }).click();
    await page.getByRole("region", { name: "pending tasks" }).getByText("Write notes").waitFor();
    const { epics } = await s.server.call("/v1/epics");
    assert.deepEqual([epics[0].title, epics[0].tags, epics[0].budgetNanoUsd], ["Launch the release", ["launch", "2026"], "1500000000"]);
    clean(page);
  });
  test("List/FiltersAndSearch", async () => {
    await epic("Quarterly numbers");
    const page = await s.at("/epics");
    await shown(page, "Quarterly numbers");
    await accessible(page, "epics");
    await page.getByLabel("Search by words").fill("numbers");
    await page.keyboard.press("Enter");
    await page.getByText("Launch the release").waitFor({ state: "detached" });
    await shown(page, "Quarterly numbers");
    await page.getByLabel("Search by words").fill("");
    await page.keyboard.press("Enter");
    await page.getByRole("checkbox", { name: "completed" }).check();
    await shown(page, "No epic matches");
    clean(page);
  });
  test("Board/FollowsTheFeed", async () => {
    const { id, first } = await epic("Live work");
    const page = await s.at(`/epics/${id}`);
    await page.getByRole("region", { name: "blocked tasks" }).getByText("Publish the page").waitFor();
    await page.getByRole("img", { name: /^Money: \$0 spent of \$2/ }).waitFor();
    await accessible(page, "epic");
    const task = await s.server.call(`/v1/tasks/${first}`);
    await s.server.call(`/v1/tasks/${first}:transition`, { state: "TASK_STATE_COMPLETED", etag: task.etag });
    await page.getByRole("region", { name: "completed tasks" }).getByText("Write the page").waitFor();
    await page.getByRole("region", { name: "pending tasks" }).getByText("Publish the page").waitFor();
    clean(page);
  });
  test("Board/IsLiveAgainAfterARestart", async () => {
    const { id, first } = await epic("Restarted work");
    const page = await s.at(`/epics/${id}`);
    await page.getByRole("region", { name: "pending tasks" }).getByText("Write the page").waitFor();
    await s.server.restart();
    await s.server.call(`/v1/tasks/${first}:transition`, { state: "TASK_STATE_COMPLETED" });
    await page.getByRole("region", { name: "completed tasks" }).getByText("Write the page").waitFor({ timeout: 30_000 });
    clean(page);
  });
  test("Tree/DependenciesLeadToATask", async () => {
    const { id } = await epic("A tree");
    const page = await s.at(`/epics/${id}?tab=tree`);
    await page.getByRole("button", { name: /Publish the page/ }).click();
    const panel = page.getByRole("complementary", { name: "Task Publish the page" });
    await panel.getByRole("button", { name: "Write the page" }).waitFor();
    await accessible(page, "epic-tree");
    await panel.getByRole("button", { name: "Write the page" }).click();
    await page.getByRole("complementary", { name: "Task Write the page" }).getByText("No run has worked on it.").waitFor();
    clean(page);
  });
  test("Task/ItsRunsAndItsCancel", async () => {
    const { id, first } = await epic("With runs");
    const run = await s.server.start({ name: "Work on it", nodes: [{ id: "a", actor: "template", named: { text: "x" } }] }, { taskId: first });
    await s.server.reach(run.id, "COMPLETED");
    const page = await s.at(`/epics/${id}?task=${first}`);
    await page.getByRole("complementary").getByRole("link", { name: "Work on it" }).waitFor();
    await accessible(page, "epic-task");
    await page.getByRole("button", { name: /Tell the press/ }).click();
    await page.getByRole("button", { name: "Cancel the task…" }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Cancel the task" }).click();
    await page.getByRole("region", { name: "canceled tasks" }).getByText("Tell the press").waitFor();
    clean(page);
  });
  test("Bill/ByDayModelAndWorkflow", async () => {
    const { id, first } = await epic("Costly");
    const run = await s.server.start({ name: "Ask", nodes: [{ id: "a", actor: "llm", named: { request: "Hello" } }] }, { taskId: first });
    await s.server.reach(run.id, "COMPLETED");
    await until(async () => (await s.server.call(`/v1/usage:report?by=REPORT_KEY_DAY&epicId=${id}`)).rows?.length);
    const page = await s.at(`/epics/${id}?tab=bill`);
    await page.getByRole("table", { name: "By model" }).getByText(/tokens/).waitFor();
    await page.getByRole("table", { name: "By workflow" }).getByText("no workflow").waitFor();
    await accessible(page, "epic-bill");
    clean(page);
  });
  test("Budget/RaisedAndThePauseAndTheCancel", async () => {
    const { id } = await epic("Steered");
    const page = await s.at(`/epics/${id}`);
    await page.getByRole("button", { name: "Budget" }).click();
    await page.getByLabel("At most, in dollars").fill("5");
    await page.getByRole("button", { name: "Set the budget" }).click();
    await page.getByRole("img", { name: /of \$5/ }).waitFor();
    await page.getByRole("button", { name: "Pause", exact: true }).click();
    await page.locator(".heading").getByText("paused").waitFor();
    await page.getByRole("button", { name: "Resume", exact: true }).click();
    await page.locator(".heading").getByText("active").waitFor();
    await page.getByRole("button", { name: "Cancel…" }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Cancel", exact: true }).click();
    await page.locator(".heading").getByText("canceled").waitFor();
    clean(page);
  });
  test("Run/StartsItsTasksByItself", async () => {
    await s.server.call("/v1/workflows", { form: "WORKFLOW_FORM_DEFINITION", source: "name: Worker\nsteps:\n  - {id: text, type: transform, template: done}\n" });
    const { id } = await epic("By itself");
    const page = await s.at(`/epics/${id}`);
    await page.getByRole("button", { name: "Run", exact: true }).click();
    await page.getByLabel("How many tasks at once").fill("2");
    await page.getByLabel("Workflow of tasks that name none").fill("worker");
    await page.getByRole("button", { name: "Run it" }).click();
    await page.getByRole("region", { name: "completed tasks" }).getByText("Publish the page").waitFor({ timeout: 30_000 });
    clean(page);
  });
  test("Look/Phone", async () => {
    const { id } = await epic("In the hand");
    for (const [path, name] of [["/epics", "epics-phone"], [`/epics/${id}`, "epic-phone"]]) {
      const phone = await s.at(path, { phone: true });
      await shown(phone, "In the hand");
      assert.ok(await fits(phone), `${name}: nothing hangs over the edge`);
      await picture(phone, name);
      clean(phone);
    }
  });
});
