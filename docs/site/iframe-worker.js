// Worker of the search in a hidden frame: a browser starts none for a page that was opened from a folder.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(address) {
      super();
      const frame = Object.assign(document.createElement("iframe"), { hidden: true });
      document.body.append(frame);
      const inside = frame.contentWindow;

      // 1. What the frame says arrives here, and what is said here arrives in the frame.
      const send = inside.postMessage.bind(inside);
      inside.postMessage = (data) => {
        const event = new MessageEvent("message", { data });
        this.dispatchEvent(event);
        this.onmessage?.(event);
      };

      // 2. Scripts are elements of the frame, one after the other.
      const load = (source) =>
        new Promise((resolve, reject) => {
          const script = inside.document.createElement("script");
          Object.assign(script, { src: source, onload: resolve, onerror: reject });
          inside.document.body.append(script);
        });
      inside.importScripts = (...sources) =>
        sources.reduce((before, source) => before.then(() => load(source)), Promise.resolve());

      // 3. Messages wait for the script of the worker.
      const ready = load(new URL(address, document.baseURI).href);
      this.postMessage = (data) => ready.then(() => send(data, "*"));
      this.terminate = () => frame.remove();
    }
  };
}
