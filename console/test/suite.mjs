// What the files of tests share: a server and a browser for each, and how pages are opened.
import { after, before } from "node:test";
import { launch, open } from "./browser.mjs";
import { Server } from "./server.mjs";

/** suite starts a server and a browser before the tests of a file, and ends them behind them. */
export function suite(options = {}) {
  const s = { server: undefined, browser: undefined };
  before(async () => {
    [s.server, s.browser] = await Promise.all([Server.start(options), launch()]);
  });
  after(async () => {
    await s.browser?.close();
    await s.server?.close();
  });
  s.at = async (path, look) => {
    const page = await open(s.browser, look);
    if (look?.key) await page.addInitScript((key) => sessionStorage.setItem("epigraph.key", key), look.key);
    await page.goto(s.server.url + path);
    return page;
  };
  return s;
}

/** shown waits until a text is in sight. */
export const shown = (page, text) => page.getByText(text, { exact: true }).first().waitFor();

/** fits says whether nothing hangs over the edge of the page. */
export const fits = (page) => page.evaluate(() => document.documentElement.scrollWidth <= window.innerWidth);
