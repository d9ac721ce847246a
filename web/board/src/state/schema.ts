// A form out of a JSON Schema: the fields that a person can fill in, and the payload they make. Pure.
//
// It is a subset; what it does not know is typed as JSON. Whether a payload fits, the server decides.

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

export interface Field {
  name: string;
  kind: "text" | "number" | "integer" | "boolean" | "choice" | "json";
  choices: readonly unknown[];
  required: boolean;
  about: string;
  /** What the field shows at first. */
  initial: string;
  schema: Schema;
}

export function fieldsOf(schema: Schema): Field[] {
  const required = new Set(schema.required);
  return Object.entries(schema.properties ?? {}).map(([name, raw]) => {
    const own = resolved(raw, schema);
    const kind = kindOf(own);
    const initial = own.default === undefined || own.default === null ? "" : shown(own.default, kind);
    return {
      name, kind, choices: own.enum ?? [], required: required.has(name),
      about: own.description ?? "", initial, schema: own,
    };
  });
}

/** The payload of a filled-in form, or what is wrong with a field. Empty fields that may be are left out. */
export function payloadOf(fields: readonly Field[], texts: Readonly<Record<string, string>>): Record<string, unknown> | string {
  const payload: Record<string, unknown> = {};
  for (const field of fields) {
    const text = texts[field.name] ?? field.initial;
    if (field.kind === "boolean") {
      if (text !== "" || field.required) payload[field.name] = text === "true";
      continue;
    }
    if (text.trim() === "" && !(field.required && field.kind === "text")) {
      if (field.required) return `${field.name} is needed.`;
      continue;
    }
    const value = valueOf(field, text);
    if (value === undefined) return `${field.name}: ${text.slice(0, 60)} is no ${field.kind === "json" ? "JSON" : field.kind}.`;
    payload[field.name] = value;
  }
  return payload;
}

function valueOf(field: Field, text: string): unknown {
  switch (field.kind) {
    case "text":
      return text;
    case "choice":
      return field.choices.find((choice) => String(choice) === text);
    case "number":
    case "integer": {
      const n = Number(text);
      return Number.isFinite(n) && (field.kind === "number" || Number.isInteger(n)) ? n : undefined;
    }
    default:
      try {
        return JSON.parse(text) as unknown;
      } catch {
        return undefined;
      }
  }
}

const shown = (value: unknown, kind: Field["kind"]): string => (kind === "json" ? JSON.stringify(value) : String(value));

function kindOf(schema: Schema): Field["kind"] {
  if (schema.enum !== undefined) return "choice";
  switch (schema.type) {
    case "string": return "text";
    case "number": case "integer": case "boolean": return schema.type;
    default: return "json";
  }
}

/** References followed, and `null` as an alternative left away: an empty field says that. */
function resolved(schema: Schema, root: Schema): Schema {
  if (schema.$ref !== undefined) {
    const there = root.$defs?.[schema.$ref.replace(/^#\/\$defs\//, "")];
    return there ? { ...resolved(there, root), ...without(schema, "$ref") } : schema;
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
