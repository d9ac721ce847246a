// Starts the real server before the tests, and stops it behind them.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import type { TestProject } from "vitest/node";

declare module "vitest" {
  export interface ProvidedContext {
    address: string;
  }
}

const here = (path: string) => fileURLToPath(new URL(path, import.meta.url));

export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const python = process.env.OUTLAST_PYTHON ?? here("../../../.venv/bin/python");
  const server = spawn(python, [here("app.py")], { stdio: ["ignore", "pipe", "inherit"] });
  const [address] = (await once(createInterface(server.stdout), "line")) as [string];
  project.provide("address", address);
  return async () => {
    server.kill("SIGTERM");
    await once(server, "exit");
  };
}
