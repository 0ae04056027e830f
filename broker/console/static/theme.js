// Sets the theme before anything is painted: "light", "dark", or what the system prefers.
(() => {
  let theme = "";
  try { theme = localStorage.getItem("quire-theme") || ""; } catch { /* storage is off: the system's */ }
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
})();
