// A form out of a JSON Schema: the fields that a person can fill in, and the payload they make. Pure.
//
// It is a subset; what it does not know is typed as JSON. Whether a payload fits, the server decides.
// What is typed is kept by path: `user.name`, `tags.0`; how long a list is, under `tags#`.

import { exact } from "@outlast/client";

export interface Schema {
  type?: string | string[];
  title?: string;
  description?: string;
  default?: unknown;
  enum?: unknown[];
  const?: unknown;
  anyOf?: Schema[];
  properties?: Record<string, Schema>;
  required?: string[];
  items?: Schema;
  $ref?: string;
  $defs?: Record<string, Schema>;
  minimum?: number;
  maximum?: number;
}

export type Texts = Readonly<Record<string, string>>;

export interface Field {
  name: string;
  path: string;
  kind: "text" | "number" | "integer" | "boolean" | "choice" | "object" | "list" | "json";
  choices: readonly unknown[];
  required: boolean;
  nullable: boolean;
  about: string;
  /** What the field shows at first; of a list, how long it is. */
  initial: string;
  schema: Schema;
  /** The fields of an object. */
  fields: readonly Field[];
  /** What a list has at first. */
  given: readonly unknown[];
  /** The field of a list's nth item. */
  item: (n: number) => Field;
}

const DEEPEST = 4; // a schema may contain itself

export function fieldsOf(schema: Schema): Field[] {
  return inside(schema, schema, "", undefined, 0);
}

function inside(of: Schema, root: Schema, path: string, given: unknown, depth: number): Field[] {
  const required = new Set(of.required);
  return Object.entries(of.properties ?? {}).map(([name, raw]) => {
    const whole = given as Record<string, unknown> | undefined;
    return fieldOf(name, `${path}${name}`, raw, root, required.has(name), whole?.[name], depth);
  });
}

function fieldOf(
  name: string, path: string, raw: Schema, root: Schema, required: boolean, given: unknown, depth: number,
): Field {
  const own = resolved(raw, root);
  const kind = kindOf(own, depth);
  const value = given ?? own.default ?? undefined;
  const list: readonly unknown[] = Array.isArray(value) ? value : [];
  const initial = kind === "list" ? String(list.length) : value === undefined ? "" : shown(value, kind);
  const item = (n: number) => fieldOf(`${n + 1}`, `${path}.${n}`, own.items ?? {}, root, true, list[n], depth + 1);
  return {
    name, path, kind, required, initial, item, given: list, schema: own,
    choices: own.enum ?? (own.const === undefined ? [] : [own.const]),
    nullable: takesNull(raw, root),
    about: raw.description ?? own.description ?? "",
    fields: kind === "object" ? inside(own, root, `${path}.`, value, depth + 1) : [],
  };
}

/** How long a list is now. */
export const lengthOf = (field: Field, texts: Texts): number => Number(texts[`${field.path}#`] ?? field.initial);

/** The texts with one more item in a list. */
export const withItem = (field: Field, texts: Texts): Texts =>
  ({ ...texts, [`${field.path}#`]: String(lengthOf(field, texts) + 1) });

/** The texts without one item of a list: those behind it move up. */
export function withoutItem(field: Field, texts: Texts, gone: number): Texts {
  const before = `${field.path}.`;
  const standard = field.given.map((value, n) => textsOf([field.item(n)], { [field.item(n).name]: value }));
  const moved: Record<string, string> = {};
  for (const [path, text] of Object.entries(Object.assign({}, ...standard, texts) as Texts)) {
    const [, digits = "", rest = ""] = path.startsWith(before) ? (/^(\d+)(.*)$/.exec(path.slice(before.length)) ?? []) : [];
    const n = Number(digits);
    if (digits === "") moved[path] = text;
    else if (n !== gone) moved[`${before}${n > gone ? n - 1 : n}${rest}`] = text;
  }
  return { ...moved, [`${field.path}#`]: String(lengthOf(field, texts) - 1) };
}

class Wrong extends Error {}

/** The payload of a filled-in form, or what is wrong with a field. Empty fields that may be are left out. */
export function payloadOf(fields: readonly Field[], texts: Texts): Record<string, unknown> | string {
  try {
    return together(fields, texts);
  } catch (wrong) {
    if (wrong instanceof Wrong) return wrong.message;
    throw wrong;
  }
}

function together(fields: readonly Field[], texts: Texts): Record<string, unknown> {
  return Object.fromEntries(fields.map((field) => [field.name, said(field, texts)]).filter(([, value]) => value !== undefined));
}

/** What a field says; undefined when it is left out. */
function said(field: Field, texts: Texts): unknown {
  const { path, kind, required, nullable } = field;
  const touched = `${path}#` in texts || Object.keys(texts).some((other) => other.startsWith(`${path}.`));
  if (kind === "object") {
    if (!touched && !required && field.schema.default === undefined) return undefined;
    if (!touched && nullable) return field.schema.default === undefined ? null : undefined;
    return together(field.fields, texts);
  }
  if (kind === "list") {
    if (!touched && field.initial === "0") return required ? (nullable ? null : []) : undefined;
    return Array.from({ length: lengthOf(field, texts) }, (_, n) => said(field.item(n), texts));
  }
  const text = texts[path] ?? field.initial;
  if (kind === "boolean") return text !== "" || (required && !nullable) ? text === "true" : required ? null : undefined;
  if (text.trim() === "" && !(required && kind === "text" && !nullable)) {
    if (required && !nullable) throw new Wrong(`${path} is needed.`);
    return required ? null : undefined;
  }
  const value = valueOf(field, text);
  if (value === undefined) throw new Wrong(`${path}: ${text.slice(0, 60)} is no ${kind === "json" ? "JSON" : kind}.`);
  return value;
}

/** The texts that make a payload. */
export function textsOf(fields: readonly Field[], payload: Readonly<Record<string, unknown>>): Record<string, string> {
  const texts: Record<string, string> = {};
  for (const field of fields) {
    const value = payload[field.name];
    if (field.kind === "object") {
      if (value !== null && value !== undefined) Object.assign(texts, textsOf(field.fields, value as Record<string, unknown>));
    } else if (field.kind === "list") {
      const list = Array.isArray(value) ? value : [];
      if (value !== undefined) texts[`${field.path}#`] = String(list.length);
      list.forEach((one, n) => {
        const item = field.item(n);
        Object.assign(texts, textsOf([item], { [item.name]: one }));
      });
    } else {
      texts[field.path] = value === null || value === undefined ? "" : shown(value, field.kind);
    }
  }
  return texts;
}

function valueOf(field: Field, text: string): unknown {
  switch (field.kind) {
    case "text":
      return text;
    case "choice":
      return field.choices.find((choice) => String(choice) === text);
    case "number":
    case "integer": {
      if (/^-?\d+$/.test(text)) return withinNumbers(BigInt(text));
      const n = Number(text);
      return Number.isFinite(n) && (field.kind === "number" || Number.isInteger(n)) ? n : undefined;
    }
    default:
      try {
        return exact.parse(text);
      } catch {
        return undefined;
      }
  }
}

const shown = (value: unknown, kind: Field["kind"]): string => (kind === "json" ? exact.stringify(value) : String(value));

/** Beyond 2^53 a number would be rounded. */
const withinNumbers = (n: bigint): number | bigint => (Number.isSafeInteger(Number(n)) ? Number(n) : n);

function kindOf(schema: Schema, depth: number): Field["kind"] {
  if (schema.enum !== undefined || schema.const !== undefined) return "choice";
  switch (schema.type) {
    case "string": return "text";
    case "number": case "integer": case "boolean": return schema.type;
    case "object": return depth < DEEPEST && Object.keys(schema.properties ?? {}).length > 0 ? "object" : "json";
    case "array": return depth < DEEPEST && schema.items !== undefined ? "list" : "json";
    default: return "json";
  }
}

function takesNull(schema: Schema, root: Schema): boolean {
  const own = referred(schema, root);
  return own.type === "null" || (Array.isArray(own.type) && own.type.includes("null")) || (own.anyOf ?? []).some((one) => takesNull(one, root));
}

function referred(schema: Schema, root: Schema): Schema {
  const there = schema.$ref === undefined ? undefined : root.$defs?.[schema.$ref.replace(/^#\/\$defs\//, "")];
  return there === undefined ? schema : { ...referred(there, root), ...without(schema, "$ref") };
}

/** References followed, and `null` as an alternative left away: an empty field says that. */
function resolved(schema: Schema, root: Schema): Schema {
  if (schema.$ref !== undefined) {
    const there = referred(schema, root);
    return there === schema ? schema : resolved(there, root);
  }
  const others = schema.anyOf?.filter((one) => one.type !== "null") ?? [];
  const [only] = others;
  if (schema.anyOf !== undefined && others.length === 1 && only) return { ...resolved(only, root), ...without(schema, "anyOf") };
  if (Array.isArray(schema.type)) {
    const types = schema.type.filter((type) => type !== "null");
    const [type] = types;
    if (types.length === 1 && type) return { ...schema, type };
  }
  return schema;
}

function without<K extends keyof Schema>(schema: Schema, name: K): Omit<Schema, K> {
  const { [name]: _, ...rest } = schema;
  return rest;
}
