// Search in a site that is opened from a folder. Browsers start no worker from file://, so what
// would run in a worker runs in a hidden frame; everywhere else this file does nothing.
if (location.protocol === "file:") {
  window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super()
      this.waiting = []
      this.frame = document.createElement("iframe")
      this.frame.hidden = true
      this.frame.title = "search"
      document.documentElement.appendChild(this.frame)
      const inside = this.frame.contentWindow
      inside.IFrameWorker = window.IFrameWorker
      inside.postMessage = data => {
        const event = new MessageEvent("message", { data })
        this.dispatchEvent(event)
        if (this.onmessage) this.onmessage(event)
      }
      inside.importScripts = (...scripts) => scripts.reduce(
        (before, source) => before.then(() => load(inside, source)), Promise.resolve()
      )
      load(inside, String(url)).then(() => {
        const waiting = this.waiting
        this.waiting = null
        waiting.forEach(data => this.postMessage(data))
      })
    }
    postMessage(data) {
      if (this.waiting) this.waiting.push(data)
      else {
        const inside = this.frame.contentWindow
        inside.dispatchEvent(new inside.MessageEvent("message", { data }))
      }
    }
    terminate() {
      this.frame.remove()
    }
  }
  const load = (inside, source) => new Promise((done, failed) => {
    const script = inside.document.createElement("script")
    script.src = source
    script.onload = done
    script.onerror = failed
    inside.document.head.appendChild(script)
  })
  window.Worker = window.IFrameWorker
}
