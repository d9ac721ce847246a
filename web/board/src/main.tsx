// The dashboard.

import { QueryClientProvider } from "@tanstack/react-query";
import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { Router } from "wouter";
import { App } from "./app.tsx";
import { useHash, useHashSearch } from "./router.ts";
import { queries } from "./state/reads.ts";
import { dress } from "./state/settings.ts";
import "./theme.css";

dress();
const place = document.getElementById("root");
if (place) {
  createRoot(place).render(
    <StrictMode>
      <QueryClientProvider client={queries}>
        <Router hook={useHash} searchHook={useHashSearch}>
          <App />
        </Router>
      </QueryClientProvider>
    </StrictMode>,
  );
}
