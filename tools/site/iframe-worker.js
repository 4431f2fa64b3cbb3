// A browser starts no worker in a page that was opened from the disk, and the theme's search runs in one. There a hidden frame
// takes the worker's place. The theme's plugin `offline` would load such a script from another server.
class IFrameWorker extends EventTarget {
  constructor(url) {
    super();
    this.onmessage = null;
    const frame = document.createElement("iframe");
    frame.hidden = true;
    document.body.appendChild(frame);
    this.frame = frame;
    window.addEventListener("message", (event) => {
      if (event.source === frame.contentWindow) {
        const message = new MessageEvent("message", { data: event.data });
        this.dispatchEvent(message);
        this.onmessage?.(message);
      }
    });
    const script = `
      postMessage = (data) => parent.postMessage(data, "*");
      importScripts = (...urls) => urls.reduce((before, url) => before.then(() => new Promise((resolve) => {
        const script = document.createElement("script");
        script.src = url;
        script.onload = resolve;
        document.body.appendChild(script);
      })), Promise.resolve());`;
    const inside = frame.contentWindow.document;
    inside.open();
    inside.write(`<body><script>${script}</script><script src="${url}"></script></body>`);
    inside.close();
    // After `open`, which removes every listener of the frame.
    this.loaded = new Promise((resolve) => frame.contentWindow.addEventListener("load", resolve));
  }

  postMessage(data) {
    this.loaded.then(() => this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data })));
  }

  terminate() {
    this.frame.remove();
  }
}

// The worker's own script looks for this name, to find its files.
window.IFrameWorker = IFrameWorker;
if (location.protocol === "file:") {
  window.Worker = IFrameWorker;
}
