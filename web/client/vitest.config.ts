import { defineConfig } from "vitest/config";

export default defineConfig({
  test: {
    include: ["test/*.test.ts"],
    globalSetup: "test/server.ts",
    testTimeout: 30_000,
    hookTimeout: 60_000,
    pool: "threads",
    maxWorkers: 1,
    isolate: false,
  },
});
