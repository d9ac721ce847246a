import { expect, test } from "vitest";
import { complete, statusOf, take, withStatus } from "./filter.ts";

const KNOWN = { types: ["summarize", "slow job"], queues: ["default", "bulk"] };
const offers = (text: string): string[] => complete(text, text.length, KNOWN).offers.map((offer) => offer.text);

test("fields are completed", () => {
  expect(offers("sta")).toEqual(["status:"]);
  expect(offers("type:summarize que")).toEqual(["queue:"]);
  expect(offers("-qu")).toEqual(["-queue:"]);
});

test("values are completed, and quoted where they must be", () => {
  expect(offers("status:de")).toEqual(["dead"]);
  expect(offers("type:s")).toEqual(["summarize", '"slow job"']);
  expect(offers("status:dead,can")).toEqual(["cancelled"]);
  expect(offers("-queue:b")).toEqual(["bulk"]);
});

test("an offer replaces what was begun, and the caret stands behind it", () => {
  const text = "queue:bulk sta age>1h";
  const { from, offers: found } = complete(text, 14, KNOWN);
  expect(take(text, 14, from, found[0] ?? { text: "", means: "" })).toEqual({ text: "queue:bulk status: age>1h", caret: 18 });
  expect(take("status:de", 9, 7, { text: "dead", means: "" })).toEqual({ text: "status:dead ", caret: 12 });
});

test("a status takes the place of another", () => {
  expect(withStatus("type:a status:dead tag:b", "running")).toBe("status:running type:a tag:b");
  expect(withStatus("status:dead", "")).toBe("");
  expect(statusOf("type:a status:dead,cancelled")).toBe("dead,cancelled");
});
