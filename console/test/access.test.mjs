// Questions, keys and the audit log, before a server that wants keys: who may see and do what.
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { accessible, clean, picture } from "./browser.mjs";
import { graphs, until } from "./server.mjs";
import { fits, shown, suite } from "./suite.mjs";

const s = suite({ http: "0.0.0.0:0" });

/** as opens a page with a key of a role. */
async function as(role, path, look = {}) {
  const key = role === "admin" ? s.server.key : (await s.server.call("/v1/keys", { name: `a ${role}`, role })).secret;
  return s.at(path, { ...look, key });
}

const open = (page) => page.getByRole("region", { name: "Questions" }).getByRole("article");

describe("Questions", { concurrency: false }, () => {
  test("Empty/Teaches", async () => {
    const page = await as("approver", "/questions");
    await shown(page, "Nothing waits for a person");
    await page.locator(".command code").first().waitFor();
    await accessible(page, "questions-empty");
    clean(page);
  });
  test("Live/AnsweredByAnApproverWhoSeesNothingElse", async () => {
    const page = await as("approver", "/questions");
    await shown(page, "Nothing waits for a person");
    const asked = await s.server.start(graphs.question);
    const payment = await s.server.start(graphs.approval);
    await page.getByText("Is the text fine?").waitFor();
    await page.getByRole("region", { name: "What is approved" }).getByText('"amount": 1200').waitFor();
    await accessible(page, "questions");
    await page.getByRole("radio", { name: "yes" }).check();
    await page.getByLabel("Level").selectOption({ label: "high" });
    await page.getByRole("spinbutton", { name: "Pages" }).fill("3");
    await page.getByRole("button", { name: "Answer", exact: true }).click();
    await s.server.reach(asked.id, "COMPLETED");
    await page.getByText("Is the text fine?").waitFor({ state: "detached" });
    await page.getByRole("button", { name: "Approve" }).click();
    await s.server.reach(payment.id, "COMPLETED");
    await shown(page, "Nothing waits for a person");
    await page.getByRole("button", { name: "Answered and expired" }).click();
    await page.getByRole("table", { name: "Closed questions" }).getByText("approved").waitFor();
    await accessible(page, "questions-closed");
    clean(page);
  });
  test("Viewer/ReadsAndIsToldWhy", async () => {
    const run = await s.server.start(graphs.approval);
    const page = await as("viewer", "/questions");
    await page.getByText("Pay this?").waitFor();
    await page.getByText(/You may read these and not answer them/).waitFor();
    assert.equal(await page.getByRole("button", { name: "Approve" }).count(), 0);
    await s.server.call(`/v1/runs/${run.id}:cancel`, { requestId: "end" });
    await shown(page, "Nothing waits for a person");
    clean(page);
  });
  test("Keyboard/FromQuestionToQuestion", async () => {
    for (let i = 0; i < 2; i++) await s.server.start(graphs.question);
    const page = await as("admin", "/questions");
    await open(page).nth(1).waitFor();
    await page.keyboard.press("j");
    await page.keyboard.press("j");
    await page.keyboard.press("Enter");
    await page.waitForURL(/\/runs\/run_/);
    await page.keyboard.press("g");
    await page.keyboard.press("q");
    await page.waitForURL(/\/questions$/);
    const phone = await as("approver", "/questions", { phone: true });
    await open(phone).first().waitFor();
    assert.ok(await fits(phone), "nothing hangs over the edge");
    await picture(phone, "questions-phone");
    clean(page);
  });
});

describe("Keys", { concurrency: false }, () => {
  test("Create/TheSecretIsShownOnceAndOpens", async () => {
    const page = await as("admin", "/settings");
    await page.getByRole("navigation", { name: "Pages" }).getByRole("link", { name: "Keys" }).click();
    await page.getByRole("button", { name: /New key|Create the first key/ }).click();
    const form = page.getByRole("dialog");
    await form.getByLabel("Name").fill("dashboard");
    await accessible(page, "keys-new");
    await form.getByRole("button", { name: "Create the key" }).click();
    const secret = (await page.locator(".explain .command code").textContent()).trim();
    assert.match(secret, /^epk_/);
    const me = await (await fetch(`${s.server.url}/v1/me`, { headers: { Authorization: `Bearer ${secret}` } })).json();
    assert.equal(me.role, "viewer");
    await page.getByRole("table", { name: "Keys" }).getByText("dashboard").waitFor();
    await page.getByRole("button", { name: "Hide it" }).click();
    await accessible(page, "keys");
    await page.reload();
    await page.getByRole("table", { name: "Keys" }).getByText("dashboard").waitFor();
    assert.ok(!(await page.content()).includes(secret), "it is shown once");
    const row = page.locator("tr", { hasText: "dashboard" });
    await row.getByRole("button", { name: "Revoke…" }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Revoke" }).click();
    await row.getByText("revoked").waitFor();
    // A server may remember for some seconds that the key was good.
    await until(async () => (await fetch(`${s.server.url}/v1/me`, { headers: { Authorization: `Bearer ${secret}` } })).status === 401);
    clean(page);
  });
  test("Create/WithScopesAndAnEnd", async () => {
    const page = await as("admin", "/keys");
    await page.getByRole("button", { name: "New key" }).click();
    const form = page.getByRole("dialog");
    await form.getByLabel("Name").fill("builder");
    await form.getByRole("checkbox", { name: /^run/ }).check();
    await form.getByRole("button", { name: "Create the key" }).click();
    await form.getByText(/a role or scopes, not both/).waitFor();
    await form.getByLabel("Role").selectOption("");
    await form.getByLabel("Ends").fill("2099-01-01T00:00");
    await form.getByRole("button", { name: "Create the key" }).click();
    await page.locator("tr", { hasText: "builder" }).getByText(/^in \d+ d/).waitFor();
    const { keys } = await s.server.call("/v1/keys?pageSize=100");
    assert.deepEqual(keys.find((k) => k.name === "builder").scopes, ["run"]);
    clean(page);
  });
  for (const [path, what] of [["keys", "the keys of the namespace"], ["audit", "the audit log"]]) {
    test(`Rights/AnOperatorIsTold/${path}`, async () => {
      const page = await as("operator", `/${path}`);
      await shown(page, `You may not see ${what}`);
      await page.getByText("operator", { exact: true }).first().waitFor();
      const nav = page.getByRole("navigation", { name: "Pages" });
      await nav.getByRole("link", { name: "Runs" }).waitFor();
      assert.equal(await nav.getByRole("link", { name: /Keys|Audit/ }).count(), 0, "no link leads to what is refused");
      await accessible(page, `${path}-refused`);
      clean(page);
    });
  }
});

describe("Audit", { concurrency: false }, () => {
  test("Filters/LiveInTheAddress", async () => {
    const run = await s.server.start(graphs.sleeping("1h"));
    await s.server.call(`/v1/runs/${run.id}:cancel`, { requestId: "cancel-it" });
    const page = await as("admin", `/audit?resource=${run.id}`);
    const table = page.getByRole("table", { name: "Audit log" });
    await table.getByText("CancelRun").waitFor({ timeout: 20_000 });
    await page.getByRole("button", { name: "Clear" }).click();
    await table.getByText("CreateKey").first().waitFor();
    await page.getByLabel("Method").fill("CreateKey");
    await page.keyboard.press("Enter");
    await table.getByText("CancelRun").first().waitFor({ state: "detached" }); // other tests cancel runs, too
    await page.getByLabel("Time").selectOption("1h");
    await page.waitForURL(/span=1h/);
    await table.getByText("CreateKey").first().waitFor();
    await accessible(page, "audit");
    await page.getByLabel("Principal").fill("key:nobody");
    await page.keyboard.press("Enter");
    await shown(page, "No entry matches");
    clean(page);
  });
  test("Look/Phone", async () => {
    for (const name of ["keys", "audit"]) {
      const phone = await as("admin", `/${name}`, { phone: true });
      await phone.getByRole("table").waitFor();
      assert.ok(await fits(phone), `${name}: nothing hangs over the edge`);
      await picture(phone, `${name}-phone`);
      clean(phone);
    }
  });
});
