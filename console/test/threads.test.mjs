// Threads, before a real server with an agent that a scripted model answers for.
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { accessible, clean, picture } from "./browser.mjs";
import { until } from "./server.mjs";
import { fits, shown, suite } from "./suite.mjs";

const config = `executor:
  actors:
    agents:
      support:
        description: Answers questions.
        definition:
          system: You answer in one line.
          form: tools
          actions: {add: {actor: cel, description: Adds., named: {expr: "1 + 1"}}}
      asker:
        description: Asks somebody.
        definition:
          reasoner: cel
          reasoner_args: {expr: "named.round == 1 ? dyn({'actions': ['ask']}) : dyn({'result': 'thanks'})"}
          actions: {ask: {actor: human, description: Asks., named: {prompt: "Is it fine?", schema: {type: object, required: [ok], properties: {ok: {type: boolean, title: "Fine?"}}}}}}
`;
const s = suite({ config });

describe("Threads", { concurrency: false }, () => {
  test("Empty/TeachesAndBegins", async () => {
    const page = await s.at("/threads");
    await shown(page, "No thread yet");
    await accessible(page, "threads-empty");
    await page.getByRole("button", { name: "Begin a conversation" }).click();
    await page.getByRole("dialog").getByRole("combobox").selectOption("agent/support");
    await page.getByLabel("Title").fill("About tea");
    await page.getByRole("button", { name: "Begin", exact: true }).click();
    await page.waitForURL(/\/threads\/thr_/);
    await page.getByRole("heading", { name: "About tea" }).waitFor();
    clean(page);
  });
  test("Chat/AMessageIsAnswered", async () => {
    const thread = await s.server.call("/v1/threads", { thread: { agent: "agent/support", title: "Chat" } });
    const page = await s.at(`/threads/${thread.id}`);
    await page.getByLabel("Message to agent/support").fill("What is tea?");
    await page.keyboard.press("Enter");
    await page.locator(".said-user").getByText("What is tea?").first().waitFor();
    await page.locator(".said-assistant").getByText(/^Done: /).waitFor();
    assert.equal(await page.locator(".said-user").count(), 1, "the message stands there once");
    await accessible(page, "thread");
    const { turns } = await s.server.call(`/v1/threads/${thread.id}/turns`);
    assert.equal(turns[0].content, "What is tea?");
    clean(page);
  });
  test("Prompt/WhatWasAskedForAnAnswer", async () => {
    const thread = await s.server.call("/v1/threads", { thread: { agent: "agent/support", title: "Prompts" } });
    await s.server.call(`/v1/threads/${thread.id}/messages`, { content: "Name a river." });
    await until(async () => (await s.server.call(`/v1/threads/${thread.id}/states`)).states?.length);
    const page = await s.at(`/threads/${thread.id}`);
    await page.getByRole("button", { name: /^Prompt of message/ }).last().click();
    const panel = page.getByRole("complementary", { name: "The prompt of an answer" });
    await panel.getByText("Name a river.").first().waitFor();
    await panel.getByRole("region", { name: "Response of the model" }).getByText(/Done: /).waitFor();
    await accessible(page, "thread-prompt");
    clean(page);
  });
  test("Question/AnsweredInline", async () => {
    const thread = await s.server.call("/v1/threads", { thread: { agent: "agent/asker", title: "Questions" } });
    const page = await s.at(`/threads/${thread.id}`);
    await page.getByLabel("Message to agent/asker").fill("Go on");
    await page.keyboard.press("Enter");
    await page.getByText("Is it fine?").first().waitFor();
    await accessible(page, "thread-question");
    await page.getByRole("radio", { name: "yes" }).check();
    await page.getByRole("button", { name: "Answer" }).click();
    await page.getByText("Is it fine?").waitFor({ state: "detached" });
    const { turns } = await s.server.call(`/v1/threads/${thread.id}/turns`);
    await s.server.reach(turns[0].runId, "COMPLETED");
    clean(page);
  });
  test("Fork/GoesOnByItself", async () => {
    const { threads } = await s.server.call("/v1/threads");
    const from = threads.find((t) => t.title === "Chat");
    const page = await s.at(`/threads/${from.id}`);
    await page.locator(".said-assistant").first().waitFor();
    await page.getByRole("button", { name: "Fork" }).click();
    await page.getByRole("link", { name: from.id }).waitFor();
    await page.locator(".said-user").getByText("What is tea?").waitFor();
    clean(page);
  });
  test("List/ByAgentAndOnAPhone", async () => {
    const page = await s.at("/threads");
    await shown(page, "Chat");
    await accessible(page, "threads");
    await page.getByLabel("Agent", { exact: true }).fill("agent/asker");
    await page.keyboard.press("Enter");
    await page.getByText("About tea").waitFor({ state: "detached" });
    await page.getByRole("table", { name: "Threads" }).getByRole("link", { name: "Questions" }).click();
    await page.waitForURL(/\/threads\/thr_/);
    const phone = await s.at(new URL(page.url()).pathname, { phone: true });
    await shown(phone, "Go on");
    assert.ok(await fits(phone), "nothing hangs over the edge");
    await picture(phone, "thread-phone");
    clean(page);
  });
});
