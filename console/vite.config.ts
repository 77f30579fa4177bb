import { defineConfig } from "vite";
import { provenance } from "./build.ts";

// `npm run dev` serves the pages from their sources, before the API of `epigraph dev`.
const api = process.env.EPIGRAPH_URL ?? "http://127.0.0.1:8080";

export default defineConfig({
  plugins: [provenance(import.meta.dirname)],
  resolve: { preserveSymlinks: false },
  build: {
    outDir: "../services/gateway/internal/console/bundle",
    emptyOutDir: true,
    target: "es2022",
    cssTarget: ["chrome123", "firefox120", "safari17.5"], // these know light-dark()
    modulePreload: { polyfill: false },
    assetsInlineLimit: 0,
    reportCompressedSize: false,
    // "use client" says something to servers, of which there is none here.
    rolldownOptions: { onLog: (level, log, say) => log.code !== "MODULE_LEVEL_DIRECTIVE" && say(level, log) },
  },
  worker: { format: "es" },
  server: { proxy: { "/v1": { target: api, changeOrigin: true }, "/openapi.json": api } },
});
