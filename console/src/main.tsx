import { createRoot } from "react-dom/client";
import { App } from "./app";
import { startTheme } from "./ui/theme";
import "./style.css";

startTheme();

const root = document.getElementById("root");
if (root) createRoot(root).render(<App />);
