"""One file a library: it defines WORKER, and the suite names it as the file is named."""
