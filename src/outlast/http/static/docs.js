// The API as its OpenAPI document tells it, without a script from anywhere else.

function make(tag, className, ...children) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  node.append(...children);
  return node;
}

const shape = (content) => {
  const schema = Object.values(content ?? {})[0]?.schema ?? {};
  return [schema, ...(schema.anyOf ?? [])].flatMap((one) => one.$ref?.split("/").pop() ?? []).join(" or ");
};

const document_ = await (await fetch("openapi.json")).json();
const groups = new Map();
for (const [path, operations] of Object.entries(document_.paths)) {
  for (const [method, told] of Object.entries(operations)) {
    const parameters = (told.parameters ?? []).filter((one) => one.in !== "path").map((one) => `${one.name} (${one.in})`);
    const takes = shape(told.requestBody?.content);
    const gives = shape(told.responses[Object.keys(told.responses)[0]]?.content);
    const more = [takes && `takes ${takes}`, gives && `answers ${gives}`, parameters.length && parameters.join(", ")].filter(Boolean);
    const group = told.tags?.[0] ?? "";
    if (!groups.has(group)) groups.set(group, []);
    groups.get(group).push(make("div", "operation", make("span", "method mono", method.toUpperCase()),
      make("span", "mono", path), make("div", "small", [told.summary, ...more].join("; "))));
  }
}
for (const [name, entries] of groups) {
  const list = make("section", "", ...entries);
  list.className = "sheet";
  document.getElementById("operations").append(make("h2", "", name), list);
}
