// Lines over time.

import { useEffect, useRef } from "react";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { clock, count, day } from "../format.ts";
import { useSettings } from "../state/settings.ts";

export interface Series {
  /** Seconds since 1970. */
  at: readonly number[];
  lines: readonly { name: string; tone: string; values: readonly number[] }[];
}

const LONG_S = 3 * 86_400; // from here on days are told apart, not hours

export function Chart({ series, label }: { series: Series; label: string }) {
  const place = useRef<HTMLDivElement>(null);
  const { theme, utc } = useSettings();
  useEffect(() => {
    const root = place.current;
    if (root === null) return;
    // A canvas knows no tokens: the element tells what one looks like in this theme.
    const colour = (name: string) => {
      root.style.color = `var(--${name})`;
      return getComputedStyle(root).color;
    };
    const axis = { stroke: colour("soft"), grid: { stroke: colour("line"), width: 1 }, ticks: { show: false }, font: "12px system-ui" };
    const width = () => Math.max(root.clientWidth, 200);
    const moment = (series.at.at(-1) ?? 0) - (series.at[0] ?? 0) > LONG_S ? day : clock;
    const plot = new uPlot(
      {
        width: width(),
        height: 180,
        padding: [12, 20, 0, 0], // half of the last label stands behind the last point
        ...(utc ? { tzDate: (at: number) => uPlot.tzDate(new Date(at * 1000), "UTC") } : {}),
        legend: { live: false },
        cursor: { y: false },
        scales: { y: { range: (_, __, most) => [0, Math.max(most, 1) * 1.1] } },
        axes: [{ ...axis, size: 28, values: (_, all) => all.map((at) => moment(at * 1000, utc)) }, { ...axis, size: 52, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 1e5, 1e6], values: (_, all) => all.map((one) => count(one)) }],
        series: [
          {},
          ...series.lines.map(({ name, tone }) => ({
            label: name, stroke: colour(tone), width: 1.5, points: { show: false },
          })),
        ],
      },
      [[...series.at], ...series.lines.map(({ values }) => [...values])],
      root,
    );
    const watch = new ResizeObserver(() => plot.setSize({ width: width(), height: 180 }));
    watch.observe(root);
    return () => {
      watch.disconnect();
      plot.destroy();
    };
  }, [series, theme, utc]);
  const sums = series.lines.map(({ name, values }) => `${count(values.reduce((sum, one) => sum + one, 0))} ${name}`);
  return <div className="chart" ref={place} role="img" aria-label={`${label}: ${sums.join(", ")}`} />;
}
