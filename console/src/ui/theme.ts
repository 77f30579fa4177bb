// Dark and light: as the system says, or as chosen here.
import { useState } from "react";

export type Theme = "system" | "light" | "dark";

const name = "epigraph.theme";

function stored(): Theme {
  const value = localStorage.getItem(name);
  return value === "light" || value === "dark" ? value : "system";
}

function apply(theme: Theme) {
  if (theme === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
}

export function startTheme() {
  apply(stored());
}

export function useTheme(): [Theme, (next: Theme) => void] {
  const [theme, setTheme] = useState(stored);
  return [
    theme,
    (next) => {
      if (next === "system") localStorage.removeItem(name);
      else localStorage.setItem(name, next);
      apply(next);
      setTheme(next);
    },
  ];
}
