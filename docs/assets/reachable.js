// For keyboards and screen readers: the search has a name, and code that scrolls can be reached.
document.addEventListener("DOMContentLoaded", () => {
  document.querySelector(".md-search")?.setAttribute("aria-label", "Search")
  for (const code of document.querySelectorAll("pre > code, .md-typeset__scrollwrap, .shown")) {
    if (code.scrollWidth > code.clientWidth) code.tabIndex = 0
  }
})
