for (const table of document.querySelectorAll("table")) {
  table.querySelectorAll("thead th").forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const rising = head.getAttribute("aria-sort") !== "ascending";
      table.querySelectorAll("th").forEach((each) => each.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", rising ? "ascending" : "descending");
      const body = table.tBodies[0];
      const value = (row) => row.cells[column].dataset.key ?? row.cells[column].textContent;
      const order = (a, b) => {
        const [x, y] = [value(a), value(b)];
        const numbers = x !== "" && y !== "" && !isNaN(x) && !isNaN(y);
        return (rising ? 1 : -1) * (numbers ? x - y : x.localeCompare(y));
      };
      body.append(...[...body.rows].sort(order));
    });
  });
}
for (const pre of document.querySelectorAll("pre")) {
  const box = document.createElement("div");
  const button = document.createElement("button");
  box.className = "paste";
  button.type = "button";
  button.textContent = "Copy";
  pre.replaceWith(box);
  box.append(pre, button);
  button.addEventListener("click", () => {
    getSelection().selectAllChildren(pre); // to copy by hand where a browser forbids the rest
    navigator.clipboard?.writeText(pre.textContent).then(() => (button.textContent = "Copied"));
  });
}
