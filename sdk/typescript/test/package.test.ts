// Packs the package, installs it into an empty project, and uses it there.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import os from "node:os";
import path from "node:path";
import { after, before, suite, test } from "node:test";
import { promisify } from "node:util";

const run = promisify(execFile);
const sdk = path.join(__dirname, "..", "..");
const bin = (name: string) => path.join(sdk, "node_modules", ".bin", name);

const program = `
const bridge = new FakeBridge();
const client = bridge.client("orders");
client.schedule({ topic: "t", due: "PT1H" }).then(async ({ id }) => {
  await bridge.advance("PT1H");
  const error = await client.cancel(id).catch((e) => e);
  console.log(bridge.requirePublished("t").id === id, error instanceof NotFoundError, typeof postgresOutbox().schedule);
});
`;
const imports = `
import { NotFoundError } from "delaybridge";
import { postgresOutbox } from "delaybridge/outbox";
import { FakeBridge } from "delaybridge/testing";
`;

suite("package", () => {
  let dir: string;
  let tarball: string;

  before(async () => {
    dir = await mkdtemp(path.join(os.tmpdir(), "delaybridge-package-"));
    const packed = await run("npm", ["pack", "--ignore-scripts", "--json", "--pack-destination", dir], { cwd: sdk });
    const { name, version } = JSON.parse(await readFile(path.join(sdk, "package.json"), "utf8"));
    tarball = path.join(dir, `${name}-${version}.tgz`);
    for (const file of ["LICENSE", "README.md", "dist/index.d.mts", "dist/testing.js"]) {
      assert.ok(packed.stdout.includes(JSON.stringify(file)), `the package has ${file}`);
    }
    assert.doesNotMatch(packed.stdout, /"(test|src|build|examples)\//);
    await writeFile(path.join(dir, "package.json"), '{"private": true}');
    await run("npm", ["install", "--offline", "--ignore-scripts", "--no-audit", "--no-fund", tarball], { cwd: dir });
  });

  after(() => rm(dir, { recursive: true, force: true }));

  test("ESM", async () => {
    await writeFile(path.join(dir, "esm.mjs"), imports + program);
    assert.equal((await run("node", ["esm.mjs"], { cwd: dir })).stdout, "true true function\n");
  });

  test("CommonJS", async () => {
    const requires = imports.replace(/import (.*) from (".*")/g, "const $1 = require($2)");
    await writeFile(path.join(dir, "cjs.cjs"), requires + program);
    assert.equal((await run("node", ["cjs.cjs"], { cwd: dir })).stdout, "true true function\n");
  });

  test("both in one process share their classes", async () => {
    const both = `
import { createRequire } from "node:module";
import * as esm from "delaybridge";
const cjs = createRequire(import.meta.url)("delaybridge");
console.log(esm.Client === cjs.Client, Object.keys(cjs).every((name) => esm[name] === cjs[name]));
`;
    await writeFile(path.join(dir, "both.mjs"), both);
    assert.equal((await run("node", ["both.mjs"], { cwd: dir })).stdout, "true true\n");
  });

  test("TypeScript, strict, of both kinds", async () => {
    const typed = `${program.replace(".catch((e) => e)", ".catch((e: unknown) => e)")}
// @ts-expect-error: It has no due time.
new FakeBridge().client("orders").schedule({ topic: "t" }).catch(() => {});
`;
    const options = {
      strict: true,
      module: "nodenext",
      target: "es2022",
      types: ["node"],
      typeRoots: [path.join(sdk, "node_modules/@types")],
    };
    for (const type of ["module", "commonjs"]) {
      const folder = path.join(dir, type);
      await mkdir(folder);
      await writeFile(path.join(folder, "package.json"), JSON.stringify({ private: true, type }));
      await writeFile(path.join(folder, "shop.ts"), imports + typed);
      await writeFile(
        path.join(folder, "tsconfig.json"),
        JSON.stringify({ compilerOptions: options, include: ["shop.ts"] }),
      );
      await run(bin("tsc"), ["-p", folder], { cwd: dir });
      assert.equal((await run("node", ["shop.js"], { cwd: folder })).stdout, "true true function\n");
    }
  });

  test("its types and its form are right", async () => {
    await run(bin("attw"), [tarball], { cwd: dir });
    await run(bin("publint"), ["--strict", tarball], { cwd: dir });
  });
});
