// Writes src/schema.ts from the OpenAPI document of the server in this checkout: `npm run api`.
import { execFileSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import openapiTS, { astToString } from "openapi-typescript";

const here = (path) => fileURLToPath(new URL(path, import.meta.url));

export const SCHEMA = here("src/schema.ts");
const HEAD = "// Written by `npm run api` from the server's OpenAPI document. Do not edit.\n\n";

export async function types(document) {
  // A field with a default may be left out by whoever sends it.
  const options = { defaultNonNullable: false, emptyObjectsUnknown: true };
  const told = await openapiTS(withoutExamples(document), options);
  return HEAD + astToString(told);
}

// They would be four fifths of the file, as comments. A shape may have a field of that name.
function withoutExamples(value, name) {
  if (Array.isArray(value)) return value.map((item) => withoutExamples(item));
  if (value === null || typeof value !== "object") return value;
  const kept = Object.entries(value).filter(
    ([key]) => name === "properties" || (key !== "example" && key !== "examples"),
  );
  return Object.fromEntries(kept.map(([key, item]) => [key, withoutExamples(item, key)]));
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const python = process.env.OUTLAST_PYTHON ?? here("../../.venv/bin/python");
  const told = execFileSync(python, ["-m", "outlast", "openapi"], { maxBuffer: 2 ** 26 });
  writeFileSync(SCHEMA, await types(JSON.parse(told.toString())));
}
