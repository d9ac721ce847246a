import { gzipSync } from "node:zlib";
import { defineConfig } from "vitest/config";

// Into the Python package: what is built is not in the repository, but it is in the wheel.
export default defineConfig({
  base: "./",
  resolve: { conditions: ["outlast-source", "module", "browser", "import", "default"] },
  ssr: { resolve: { conditions: ["outlast-source", "import", "default"] } }, // the tests
  build: {
    outDir: "../../src/outlast/http/board",
    emptyOutDir: true,
    target: "es2022",
    modulePreload: { polyfill: false },
    assetsInlineLimit: 0,
    rolldownOptions: {
      input: ["index.html", "ask.html"],
      checks: { bundlerTimings: false, pluginTimings: false },
      onwarn: (warning, tell) => {
        if (warning.code !== "MODULE_LEVEL_DIRECTIVE") tell(warning); // "use client" says nothing here
      },
    },
  },
  plugins: [
    {
      name: "packed", // beside each file, for browsers that are not on this machine
      generateBundle: {
        order: "post",
        handler(_, bundle) {
          for (const file of Object.values(bundle)) {
            if (!/\.(js|css)$/.test(file.fileName)) continue;
            const text = file.type === "chunk" ? file.code : file.source;
            this.emitFile({ type: "asset", fileName: `${file.fileName}.gz`, source: gzipSync(text) });
          }
        },
      },
    },
  ],
  test: { include: ["src/**/*.test.ts"], pool: "threads", maxWorkers: 1, isolate: false },
});
